"""Every option of Paceline, declared once.

The command line's flags, the `PACELINE_*` variables, the help texts, the table in docs/options.md and the checks all
derive from `OPTIONS`. Values given by flag travel to the ranks as variables, so there is one place that parses them:
`read`. A name that is not declared here is refused, with the nearest that is.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError

PREFIX = "PACELINE_"
DEFAULT = "default"


def as_text(value: Any) -> str:
    """A value as it would be written in a variable or on the command line; "none" where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


@dataclass(frozen=True)
class Option:
    """One option. `parse` turns text into the value and raises ValueError with the rule that the text breaks."""

    name: str
    parse: Callable[[str], Any]
    kind: str
    unit: str
    default: Any
    meaning: str
    scope: str

    @property
    def variable(self) -> str:
        """The environment variable: PACELINE_ and the name in capitals."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """The command line flag: the name with dashes."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as documents show it; one that is worked out on the machine at hand is described."""
        if callable(self.default):
            return (self.default.__doc__ or "").strip().rstrip(".")
        return as_text(self.default)

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value and has an opposite, --no-...."""
        return self.parse is _boolean

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling of the flag: a switch has an opposite."""
        return (self.flag, "--no-" + self.flag.removeprefix("--")) if self.is_switch else (self.flag,)


def _boolean(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise ValueError("must be 1 or 0 (also true/false, yes/no, on/off)") from None


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def _count(text: str) -> int:
    return 0 if text.strip() == "0" else _positive(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and below 1")
    return value


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


EXCHANGES = ("sync", "pipelined", "solo", "majority")


def _exchange(text: str) -> str:
    if text.strip() not in EXCHANGES:
        raise ValueError(f"must be one of {', '.join(EXCHANGES)}")
    return text.strip()


def _path(text: str) -> Path:
    if not text.strip():
        raise ValueError("must be a path")
    return Path(text).expanduser()


def _cache_home() -> Path:
    """`paceline` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def _processors() -> int:
    """one per processor."""
    return os.cpu_count() or 1


# Scopes: "run" options act in the ranks and are flags of `paceline run`; "host" options act when Horovod is built.
OPTIONS: tuple[Option, ...] = (
    Option(
        "record", _path, "path", "", None,
        "write a trace of every step (arrivals of tensors, times of collectives) to this file, one per rank", "run",
    ),
    Option(
        "record_steps", _positive, "whole number", "steps", 1000,
        "keep the trace of this many most recent steps", "run",
    ),
    Option(
        "check_host", _boolean, "yes or no", "", True,
        "at start, check that Horovod was built by this Paceline for the frameworks that are installed", "run",
    ),
    Option(
        "fusion", _text, "policy", "", "threshold",
        "how gradients are merged into messages: threshold (Horovod's own), none, single, mgwfbp, optimal, or a policy "
        "of your own (docs/fusion.md)", "run",
    ),
    Option(
        "fusion_warmup_steps", _positive, "whole number", "steps", 10,
        "measure this many steps before the first plan is made", "run",
    ),
    Option(
        "fusion_watch_steps", _count, "whole number", "steps", 100,
        "measure again, and plan anew where that pays, after so many steps; 0: never", "run",
    ),
    Option(
        "fusion_time_limit_s", _positive, "whole number", "s", 10,
        "how long a policy of your own may take to make a plan", "run",
    ),
    Option(
        "exchange", _exchange, "exchange", "", "sync",
        "when gradients are used, and whose: sync (in their step), pipelined (one step later, while the next ones are "
        "computed), majority or solo (in their step without waiting for late ranks, once half or one of the ranks have "
        "come)", "run",
    ),
    Option(
        "pipeline_k", _positive, "whole number", "", 2,
        "iteration dependency K of the pipelined exchange: gradients are K - 1 steps old when they are used", "run",
    ),
    Option(
        "pipeline_warmup_steps", _count, "whole number", "updates", 0,
        "make this many updates synchronously before exchanges are pipelined", "run",
    ),
    Option(
        "pipeline_anneal_steps", _count, "whole number", "updates", 0,
        "with K above 2, let the learning rate grow to its own value for this many pipelined updates, from 1/(K - 1) "
        "of it", "run",
    ),
    Option(
        "pipeline_correction", _share, "number", "", 0.0,
        "compute gradients at the weights expected when they will be used: what is left of an old change of the "
        "weights after K - 1 updates, such as 0.1; 0: off", "run",
    ),
    Option(
        "partial_max_lag", _count, "whole number", "rounds", 0,
        "of exchanges that do not wait: wait for a rank that has not come for this many rounds; 0: never", "run",
    ),
    Option(
        "partial_sync_every", _count, "whole number", "updates", 0,
        "of exchanges that do not wait: average the models of all ranks after this many updates; 0: never", "run",
    ),
    Option(
        "gate_timeout_ms", _positive, "whole number", "ms", 500,
        "let an incomplete group of gradients go when none has appeared for this long (at least 3 x the longest pause)",
        "run",
    ),
    Option(
        "cache_dir", _path, "path", "", _cache_home,
        "where Horovod's archive and the wheels built from it are kept", "host",
    ),
    Option(
        "build_jobs", _positive, "whole number", "processes", _processors,
        "how many compilers run at once while Horovod is built", "host",
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


def nearest(word: str, known: list[str], otherwise: str | None = None) -> str:
    """A sentence that names the known word nearest to `word`; if none is near, `otherwise` or a list of them all."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    return otherwise or f"Known: {', '.join(sorted(known))}."


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

    Raises UserError for a PACELINE_ name that no option declares and for a value that does not parse, in a variable
    also where a flag would override it.
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
        values[option.name], origins[option.name] = parse(option, environ[name], name), name
    for name, text in (flags or {}).items():
        option = _BY_NAME[name]
        value = parse(option, text, option.flag)
        values[name], origins[name] = value, option.flags[-1] if value is False else option.flag
    for option in OPTIONS:
        if option.name not in values:
            values[option.name] = option.default() if callable(option.default) else option.default
    return Settings(values, origins)


def markdown_table() -> str:
    """The table of options in docs/options.md."""
    lines = ["| variable | flag | value | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for option in OPTIONS:
        value = f"{option.kind} ({option.unit})" if option.unit else option.kind
        command = "paceline run" if option.scope == "run" else "paceline host"
        flag = ", ".join(f"`{flag}`" for flag in option.flags)
        lines.append(
            f"| `{option.variable}` | {flag} of `{command}` | {value} | {option.default_text} | {option.meaning} |"
        )
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """The whole of docs/options.md."""
    return f"""# Options

Every option is declared once, in `plugin/config.py`; this page is made from it by
`python -c "from paceline import config; print(config.options_page(), end='')"`, and a test compares them.

A flag wins over its variable, the variable over the default. `paceline options` shows the values in force. An unknown
`PACELINE_*` variable and a value that does not parse are refused by every command and by `hvd.init()`.

{markdown_table()}"""
