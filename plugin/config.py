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


def _path(text: str) -> Path:
    if not text.strip():
        raise ValueError("must be a path")
    return Path(text).expanduser()


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


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
        "cache_dir", _path, "path", "", _cache_home,
        "where Horovod's archive and the wheels built from it are kept", "host",
    ),
    Option(
        "build_jobs", _positive, "whole number", "processes", lambda: os.cpu_count() or 1,
        "how many compilers run at once while Horovod is built", "host",
    ),
)  # fmt: skip

_BY_NAME = {option.name: option for option in OPTIONS}


class Settings:
    """Parsed values by option name: `settings.record_steps`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None


def nearest(word: str, known: list[str]) -> str:
    """A sentence that names the known word nearest to `word`, or lists them all."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(sorted(known))}."


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


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """All options from the environment (os.environ unless given), defaults where nothing is set.

    Raises UserError for a PACELINE_ name that no option declares and for a value that does not parse.
    """
    environ = os.environ if environ is None else environ
    variables = {option.variable: option for option in OPTIONS}
    values: dict[str, Any] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        if name not in variables:
            raise UserError(
                f"The environment variable {name} is not an option of Paceline.",
                nearest(name, list(variables)) + " `paceline options` lists all of them.",
            )
        values[variables[name].name] = parse(variables[name], environ[name], name)
    for option in OPTIONS:
        if option.name not in values:
            values[option.name] = option.default() if callable(option.default) else option.default
    return Settings(values)


def markdown_table() -> str:
    """The table of options in docs/options.md."""
    lines = ["| variable | flag | value | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for option in OPTIONS:
        default = "see meaning" if callable(option.default) else option.default
        value = f"{option.kind} ({option.unit})" if option.unit else option.kind
        flag = f"`paceline run {option.flag}`" if option.scope == "run" else f"`paceline host build {option.flag}`"
        lines.append(f"| `{option.variable}` | {flag} | {value} | {default} | {option.meaning} |")
    return "\n".join(lines) + "\n"
