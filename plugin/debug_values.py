"""Values for tests and support, in one variable: PACELINE_DEBUG="name=value,name=value".

Not for users: the defaults fit every job. They are declared and parsed as options are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline import option as of
from paceline.option import Option, as_text, nearest

NAME = "debug"
# Option and value that switch on everything of merging by plan. The registry of policies may not be imported here.
_PLANNED = ("fusion", "optimal")
# What ends the sleep of Horovod's background thread.
CYCLE, EVENTS = "cycle", "events"
# Size limit of bucketed gradients where everything is planned.
SMALL_BYTES = 16384

DEBUG_VALUES: tuple[Option, ...] = (
    Option(
        "armed", of.boolean, "yes or no", "", False,
        "negotiate only the first message of each step, if steps are equal and merged by plan (docs/methods/armed.md)",
        NAME, along=(*_PLANNED, True),
    ),
    Option(
        "wake", of.one_of((CYCLE, EVENTS)), "word", "", CYCLE,
        "when ranks coordinate: in every cycle, as Horovod does, or when a tensor was submitted "
        "(docs/developers/coordination.md)", NAME, along=(*_PLANNED, EVENTS),
    ),
    Option(
        "bucket_bytes", of.count, "whole number", "bytes", 0,
        "PyTorch's dense gradients in CPU memory of at most this size share buckets, e.g. 65536; 0 disables buckets "
        "(docs/methods/small_gradients.md)", NAME, along=(*_PLANNED, SMALL_BYTES),
    ),
    Option(
        "record_steps", of.positive, "whole number", "steps", 1000,
        "a trace keeps this many most recent steps", NAME, shared=None,
    ),
    Option(
        "record_stop", of.count, "whole number", "steps", 0,
        "end a run after this many recorded steps, once every rank has written its trace; 0 disables this",
        NAME, shared=None,
    ),
    Option(
        "record_stop_s", of.count, "whole number", "s", 0,
        "a run that record_stop ends makes steps for at least this time", NAME, shared=None,
    ),
    Option(
        "record_buckets", of.boolean, "yes or no", "", False,
        "use buckets although steps are recorded", NAME,
    ),
    Option(
        "metrics_interval_s", of.positive, "whole number", "s", 5,
        "time between two writes of the files of PACELINE_METRICS", NAME, shared=None,
    ),
    Option(
        "check_horovod", of.boolean, "yes or no", "", True,
        "at start, check that Horovod was built by this Paceline for the frameworks that are installed", NAME,
        shared=None,
    ),
    Option(
        "fusion_warmup_steps", of.positive, "whole number", "steps", 10,
        "steps that are measured before the first plan is made", NAME,
    ),
    Option(
        "fusion_watch_steps", of.count, "whole number", "steps", 100,
        "steps after which costs are measured again, and a better plan replaces this one; 0 keeps the first plan",
        NAME,
    ),
    Option(
        "fusion_trial_steps", of.count, "whole number", "steps", 100,
        "steps within which a plan must prove faster than Horovod's own merging; 0 disables the trial", NAME,
    ),
    Option(
        "fusion_follow", of.boolean, "yes or no", "", True,
        "follow plans; no: measure, write the measurements to the trace, and leave merging to Horovod",
        NAME,
    ),
    Option(
        "fusion_time_limit_s", of.positive, "whole number", "s", 10,
        "time limit of a policy of your own for making a plan", NAME,
    ),
    Option(
        "gate_timeout_ms", of.positive, "whole number", "ms", 500,
        "release an incomplete group of gradients when none has appeared for this long (at least 3 x the longest "
        "pause)", NAME,
    ),
    Option(
        "collective_block_bytes", of.count, "whole number", "bytes", 0,
        "block size of Paceline's collectives; 0: 64 KiB for linear, 512 KiB for ring of 3 and more ranks, else "
        "128 KiB", NAME,
    ),
    Option(
        "codec_error_feedback", of.boolean, "yes or no", "", True,
        "add the rounding error of a gradient to the next one of this name, unless the script sets it", NAME,
    ),
    Option(
        "codec_least_bytes", of.count, "whole number", "bytes", 1024,
        "smaller tensors are not encoded", NAME,
    ),
)  # fmt: skip
_BY_NAME = {one.name: one for one in DEBUG_VALUES}


class DebugValues(dict[str, Any]):
    """Given values by name; str() formats them as the variable's text."""

    def __str__(self) -> str:
        return ",".join(f"{name}={as_text(value)}" for name, value in self.items())


def parse(text: str) -> DebugValues:
    """Parse "name=value,name=value" into values by name; of equal names the last counts.

    Raises ValueError for unknown names and for values that do not parse.
    """
    found = DebugValues()
    for pair in text.split(","):
        name, equals, value = (word.strip() for word in pair.partition("="))
        if not equals:
            raise ValueError(f"must be name=value,name=value, and {pair!r} is not")
        if name not in _BY_NAME:
            raise ValueError(f"must name debug values, and {name} is none. {nearest(name, list(_BY_NAME))}".rstrip("."))
        one = _BY_NAME[name]
        try:
            found[name] = one.parse(value)
        except ValueError as error:
            raise ValueError(f"{name}={value!r} {error}" + (f" ({one.unit})" if one.unit else "")) from None
    return found


def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a process without the variable, whose options have these values, by name."""
    return {one.name: one.default_among(options) for one in DEBUG_VALUES}


def shared(values: Mapping[str, Any]) -> str:
    """Return the text of the values that must be equal on all ranks and are not at their defaults.

    `values`: of options and debug values, by name.
    """
    return str(
        DebugValues(
            (one.name, values[one.name])
            for one in DEBUG_VALUES
            if one.shared is not None and values[one.name] != one.default_among(values)
        )
    )
