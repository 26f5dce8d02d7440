"""Every option of Paceline, declared once: those of exchanges with their exchange (paceline.registry.exchanges).

The command line's flags, the `PACELINE_*` variables, the help texts, the table in docs/options.md and the checks all
derive from `OPTIONS`. Values given by flag travel to the ranks as variables, so there is one place that parses them:
`read`. A name that is not declared here is refused, with the nearest that is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline import option as of
from paceline.codecs.choice import EXACT
from paceline.common_settings import HOROVODS as OF_HOROVOD
from paceline.common_settings import Setting
from paceline.errors import UserError
from paceline.exchange.declaration import ExchangeSettings
from paceline.option import PREFIX as PREFIX
from paceline.option import Option as Option
from paceline.option import as_text as as_text
from paceline.option import nearest as nearest
from paceline.option import whether_given
from paceline.registry.codecs import CODECS, Codec
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS, OF_CODECS
from paceline.registry.exchanges import NAMES, named, options_of_exchanges, summary
from paceline.registry.policies import BUILT_IN, THRESHOLD

EXCHANGES = NAMES
DEFAULT = "default"
# What ends the sleep of Horovod's background thread.
CYCLE, EVENTS = "cycle", "events"


def _cache_home() -> Path:
    """`paceline` in the user's cache folder."""
    try:
        home = Path.home()
    except RuntimeError:  # a user whom the system does not know, as in containers
        home = Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "paceline"


def _processors() -> int:
    """one per processor."""
    return os.cpu_count() or 1


def _listed(known: Mapping[str, tuple[int, str] | Codec]) -> str:
    return ", ".join(f"{name} ({declared[1]})" for name, declared in known.items())


_POLICY = "the script names a policy (fusion=)"
_CODEC = "the script names a codec (codec=)"

# Scopes: "run" options act in the ranks and are flags of `paceline run`; "horovod" options act when Horovod is built.
OPTIONS: tuple[Option, ...] = (
    Option(
        "record", of.path, "path", "", None,
        "write a trace of every step (arrivals of tensors, times of collectives) to this file, one per rank", "run",
        shared=whether_given,  # recorded gradients do not travel in buckets
    ),
    Option(
        "record_steps", of.positive, "whole number", "steps", 1000,
        "keep the trace of this many most recent steps", "run", ("record", ()), shared=None,
    ),
    Option(
        "check_horovod", of.boolean, "yes or no", "", True,
        "at start, check that Horovod was built by this Paceline for the frameworks that are installed", "run",
        shared=None,
    ),
    Option(
        "progress", of.boolean, "yes or no", "", True,
        "under `paceline run`, show which hosts are up, and say when the first step is done; other launchers let the "
        "ranks say so themselves where it is set", "run", shared=None,
    ),
    Option(
        "fusion", of.text, "policy", "", THRESHOLD,
        f"how gradients are merged into messages: {', '.join(BUILT_IN)} ({THRESHOLD} is Horovod's own), or a policy of "
        "your own (docs/fusion.md)", "run",
    ),
    Option(
        "bucket_bytes", of.count, "whole number", "bytes", 0,
        "of PyTorch's dense gradients in CPU memory, those of at most so many bytes travel together, e.g. 65536; 0: "
        "each by itself (docs/small_gradients.md)", "run",
    ),
    Option(
        "fusion_warmup_steps", of.positive, "whole number", "steps", 10,
        "measure this many steps before the first plan is made", "run", ("fusion", ()), unless=_POLICY,
    ),
    Option(
        "fusion_watch_steps", of.count, "whole number", "steps", 100,
        "measure again, and plan anew where that pays, after so many steps; 0: never", "run",
        ("fusion", ()), unless=_POLICY,
    ),
    Option(
        "fusion_trial_steps", of.count, "whole number", "steps", 100,
        "steps in which a plan may show that it is ahead of Horovod's own merging, or goes; 0: plans are not tried",
        "run", ("fusion", ()), unless=_POLICY,
    ),
    Option(
        "armed", of.boolean, "yes or no", "", False,
        "where steps are alike and merged by plan, negotiate only the first message of each (docs/armed.md)", "run",
        ("fusion", ()), unless=_POLICY,
    ),
    Option(
        "fusion_time_limit_s", of.positive, "whole number", "s", 10,
        "how long a policy of your own may take to make a plan", "run", ("fusion", ()), unless=_POLICY,
    ),
    Option(
        "exchange", of.one_of(NAMES), "exchange", "", NAMES[0],
        f"when gradients are used, and whose: {summary()}", "run",
    ),
    *options_of_exchanges(),
    Option(
        "drain_limit_s", of.positive, "whole number", "s", 600,
        "how long a rank that drains or ends waits for ranks that train on, of which nothing is heard", "run",
    ),
    Option(
        "collective", of.one_of(COLLECTIVES), "collective", "", HOROVODS,
        f"how messages move between ranks, those in CPU memory: {_listed(COLLECTIVES)} (docs/collectives.md)", "run",
    ),
    Option(
        "collective_block_bytes", of.count, "whole number", "bytes", 0,
        "what our own collectives send at a time, the same on all ranks; 0: 64 KiB for linear, 512 KiB for ring of 3 "
        "and more, else 128 KiB", "run",
    ),
    Option(
        "network_file", of.path, "path", "", None,
        "predict with the network in this file, which `paceline probe` wrote, the same on all ranks, where the "
        f"collective is {AUTO} (docs/collectives.md)", "run", shared=whether_given,  # contents: collectives/probed.py
    ),
    Option(
        "codec", of.one_of(CODECS), "codec", "", EXACT,
        f"how floating-point values of allreduces travel in our own collectives: {_listed(CODECS)} (docs/codecs.md); "
        f"without a collective of our own messages go by {OF_CODECS}", "run",
    ),
    Option(
        "codec_error_feedback", of.boolean, "yes or no", "", True,
        "add what a codec loses of a gradient to the next one of its name", "run", ("codec", ()), unless=_CODEC,
    ),
    Option(
        "codec_least_bytes", of.count, "whole number", "bytes", 1024,
        "smaller tensors travel as they are", "run", ("codec", ()), unless=_CODEC,
    ),
    Option(
        "wake", of.one_of((CYCLE, EVENTS)), "word", "", CYCLE,
        "when ranks coordinate: in every cycle, as Horovod does, or when something was handed in "
        "(docs/coordination.md)", "run",
    ),
    Option(
        "gate_timeout_ms", of.positive, "whole number", "ms", 500,
        "let an incomplete group of gradients go when none has appeared for this long (at least 3 x the longest pause)",
        "run",
    ),
    Option(
        "cache_dir", of.path, "path", "", _cache_home,
        "where Horovod's archive and the wheels built from it are kept", "horovod", shared=None,
    ),
    Option(
        "build_jobs", of.positive, "whole number", "processes", _processors,
        "how many compilers run at once while Horovod is built", "horovod", shared=None,
    ),
)  # fmt: skip

_BY_NAME = {option.name: option for option in OPTIONS}


class Settings:
    """Parsed values by option name: `settings.record_steps`; `settings.origin(name)` says where a value came from."""

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> None:
        self._values = dict(values)
        self._origins = dict(origins or {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def origin(self, name: str) -> str:
        """The flag or the variable that gave the option its value, or "default"."""
        return self._origins.get(name, DEFAULT)

    def given(self) -> list[str]:
        """The names of the options that a flag or a variable set, in the order of declaration."""
        return [option.name for option in OPTIONS if option.name in self._origins]

    def shared(self) -> list[Setting]:
        """The options that must be equal on all ranks and are not at their defaults: variable, value and default."""
        compared = [
            (option.variable, option.shared(getattr(self, option.name)), option.shared(option.default))
            for option in OPTIONS
            if option.shared is not None
        ]
        return [one for one in compared if one[1] != one[2]]

    def without_effect(self) -> list[str]:
        """A sentence for each option that was given in vain: it says more about what another one did not ask for."""
        return [
            f"{option.variable}={as_text(getattr(self, name))} has no effect{_unless(option)}: "
            f"{_belonging(option, self)}."
            for name in self.given()
            for option in [_BY_NAME[name]]
            if option.needs is not None and not self._asks_for(*option.needs)
            if getattr(self, name) and not (option.is_switch and option.default)  # what is 0 or off asks for nothing
        ]

    def _asks_for(self, name: str, values: tuple[str, ...]) -> bool:
        return getattr(self, name) in values if values else name in self.given()


def _unless(option: Option) -> str:
    return f" unless {option.unless}" if option.unless else ""


def _belonging(option: Option, settings: Settings) -> str:
    """What the option needs, and what it found."""
    assert option.needs is not None
    other, values = _BY_NAME[option.needs[0]], option.needs[1]
    if not values:
        return f"it belongs to {other.variable} ({other.flag}), which was not given"
    return (
        f"it belongs to {other.variable}={' or '.join(values)} ({other.flag}), and that is "
        f"{as_text(getattr(settings, other.name))}"
    )


def parse(option: Option, text: str, given_as: str) -> Any:
    """The value of `text`; raises UserError that names `given_as` (a variable or flag) and shows the value."""
    try:
        return option.parse(text)
    except ValueError as error:
        unit = f" ({option.unit})" if option.unit else ""
        raise UserError(
            f"{given_as}={text!r} cannot be used: it {error}{unit}.",
            f"{option.variable}: {option.meaning}. Correct the value or leave it out.",
        ) from None


def read(environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Settings:
    """All options: from `flags` (text by option name) first, then from the environment (os.environ unless given),
    then the defaults.

    An empty variable is one that is not set. Raises UserError for a PACELINE_ name that no option declares and for a
    value that does not parse, in a variable also where a flag would override it.
    """
    environ = os.environ if environ is None else environ
    variables = {option.variable: option for option in OPTIONS}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        if name not in variables:
            raise UserError(
                f"The environment variable {name} is not an option of Paceline.",
                nearest(name, list(variables)) + " `paceline options` lists all of them.",
            )
        option = variables[name]
        if not environ[name]:  # as shells and job files leave it where nothing was given
            continue
        values[option.name], origins[option.name] = parse(option, environ[name], name), name
    for name, text in (flags or {}).items():
        option = _BY_NAME[name]
        value = parse(option, text, option.flag)
        values[name], origins[name] = value, option.flags[-1] if value is False else option.flag
    for option in OPTIONS:
        if option.name not in values:
            values[option.name] = option.default() if callable(option.default) else option.default
    return Settings(values, origins)


def exchange_of_variables() -> ExchangeSettings:
    """The exchange that the variables ask for. Raises UserError as `read`."""
    values = read()
    return named(values.exchange).of_options(values.exchange, values)


def buckets_of_variables() -> int:
    """The most bytes of a gradient that travels in a bucket, as the variables say; 0: none. Raises UserError as `read`.

    None where steps are recorded: each gradient of a trace is one that a plan may merge with others.
    """
    values = read()
    return 0 if values.record else int(values.bucket_bytes)


def markdown_table() -> str:
    """The table of options in docs/options.md."""
    lines = [
        "| variable | flag | value | default | on all ranks | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for option in OPTIONS:
        value = f"{option.kind} ({option.unit})" if option.unit else option.kind
        command = "paceline run" if option.scope == "run" else "paceline horovod"
        flag = ", ".join(f"`{flag}`" for flag in option.flags)
        ranks = "any" if option.shared is None else "given or not" if option.shared is whether_given else "equal"
        lines.append(
            f"| `{option.variable}` | {flag} of `{command}` | {value} | {option.default_text} | {ranks} | "
            f"{option.meaning} |"
        )
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """The whole of docs/options.md."""
    horovods = "\n".join(f"| `{one.name}` | {one.default or 'by build'} | {one.why} |" for one in OF_HOROVOD)
    return f"""# Options

Every option is declared once, in `plugin/config.py`; this page is made from it by
`python -c "from paceline import config; print(config.options_page(), end='')"`, and a test compares them.

A flag wins over its variable, the variable over the default. `paceline options` shows the values in force. An unknown
`PACELINE_*` variable and a value that does not parse are refused by every command and by `hvd.init()`.

{markdown_table()}
## Settings that must be equal on all ranks

`hvd.init()` compares the settings of all ranks, in every world of an elastic job, too. Where they differ, it raises an
error on all ranks that names each variable, its value on each rank and how to export it:

| launcher | how it exports a variable |
| --- | --- |
| `paceline run`, horovodrun | by itself, all of them |
| mpirun (Open MPI) | `-x NAME` for each |
| mpiexec (MPICH) | `-genvlist NAME,...` or `-genvall` |
| srun | `--export=ALL` (its default, unless SLURM_EXPORT_ENV says otherwise) or `--export=ALL,NAME` |
| ssh | `ssh HOST env NAME=VALUE COMMAND` |

Compared are the options marked "equal" above ("given or not": whether there is a value), the version of Paceline, the
digest of its changes of Horovod, and these variables of Horovod:

| variable | default | why it must be equal |
| --- | --- | --- |
{horovods}

Other variables of Horovod may differ: HOROVOD_CYCLE_TIME and HOROVOD_THREAD_AFFINITY change a rank's speed alone, the
HOROVOD_STALL_ and HOROVOD_TIMELINE variables count on rank 0, and HOROVOD_GLOO_IFACE belongs to the host.
"""
