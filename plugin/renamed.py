"""Names of Paceline 0.1 that have changed. Each is refused with a message that has the new name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.debug_values import DEBUG_VALUES, NAME
from paceline.errors import UsageError
from paceline.option import PREFIX

OPTIONS = {
    "pipeline_k": "pipelined_k",
    "pipeline_warmup_steps": "pipelined_warmup_steps",
    "pipeline_correction": "pipelined_correction",
    "partial_sync_every": "sync_every",
    "local_every": "sync_every",
}
# Option -> the equivalent argument in a script.
ARGUMENTS = {
    "pipeline_anneal_steps": "exchange=hvd.Pipelined(annealing_steps=...)",
    "local_outer_momentum": "exchange=hvd.Local(outer_momentum=...)",
    "local_outer_lr": "exchange=hvd.Local(outer_lr=...)",
    "local_nesterov": "exchange=hvd.Local(nesterov=True)",
}
# Option -> remedy.
OTHERS = {"build_jobs": "Set CMAKE_BUILD_PARALLEL_LEVEL, CMake's variable."}
# Option or argument -> old value -> new value.
VALUES = {"collective": {"gloo": "horovod"}, "codec": {"trunc16": "bf16"}}
# Class -> old keyword argument -> new one.
KEYWORDS = {
    "Pipelined": {"anneal_steps": "annealing_steps"},
    "Local": {"every": "sync_every"},
    "Pipeline": {"discrepancy": "correction"},
}
COMMANDS = {"paceline options": "paceline doctor --options", "paceline schedule": "paceline plan stages"}
_DEBUG = frozenset(one.name for one in DEBUG_VALUES)


def variable(name: str) -> str:
    """Return the replacement for a variable of 0.1 as a sentence; "" if `name` was not one, or still is."""
    option = name.removeprefix(PREFIX).lower() if name.startswith(PREFIX) else ""
    return _option(option, lambda new: PREFIX + new.upper(), f"{PREFIX}{NAME.upper()}={option}=VALUE")


def flag(name: str) -> str:
    """Return the replacement for a command line flag of 0.1 as a sentence, as `variable`."""
    option = name.removeprefix("--").removeprefix("no-").replace("-", "_") if name.startswith("--") else ""
    value = "no" if name.startswith("--no-") else "VALUE"
    return _option(option, lambda new: "--" + new.replace("_", "-"), f"--{NAME} {option}={value}")


def _option(option: str, written: Callable[[str], str], debug: str) -> str:
    if option in OPTIONS:
        return f"Use {written(OPTIONS[option])}."
    if option in OTHERS:
        return OTHERS[option]
    if option in ARGUMENTS:
        return f"Give {ARGUMENTS[option]} to the wrapper in the script."
    return f"Use {debug}." if option in _DEBUG else ""


def value(name: str, text: str) -> str:
    """Return the replacement for the value `text` of the option or argument `name`; "" if 0.1 had no such value."""
    new = VALUES.get(name, {}).get(text.strip(), "")
    return f"Use {new}." if new else ""


def refuse_keywords(owner: str, given: Mapping[str, Any]) -> None:
    """Raise UsageError if `given` has a keyword argument that the class `owner` had only in 0.1."""
    for old, new in KEYWORDS.get(owner, {}).items():
        if old in given:
            raise UsageError(f"hvd.{owner} has no argument {old}.", f"Use {new}={given[old]!r}.")
