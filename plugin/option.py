"""Declaration of options, and parsers from text to values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.variables import PREFIX as PREFIX


def as_text(value: Any) -> str:
    """Format a value as in a variable or on the command line; None becomes "none"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def whether_given(value: Any) -> str:
    """Return "given", or "not given" for None."""
    return "not given" if value is None else "given"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: the name in Python; `variable` and `flag` derive from it.
        parse: turns text into the value; raises ValueError with the rule that the text breaks.
        kind: the kind of value, for tables.
        unit: the unit of the value; empty if it has none.
        default: the default value, or a function that returns it and whose docstring describes it.
        meaning: one line for help texts and tables.
        scope: the command that has the flag: "run" or "horovod".
        needs: another option and the values of it with which this option has an effect; no values: any given value.
        shared: the text to compare between ranks; None if each rank may have its own value.
        along: another option, a value of it, and this option's default when the other has that value.
    """

    name: str
    parse: Callable[[str], Any]
    kind: str
    unit: str
    default: Any
    meaning: str
    scope: str
    needs: tuple[str, tuple[str, ...]] | None = None
    shared: Callable[[Any], str] | None = as_text
    along: tuple[str, str, Any] | None = None

    @property
    def variable(self) -> str:
        """The environment variable: PACELINE_ and the name in capitals."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """The command line flag: the name with dashes."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_value(self) -> Any:
        """The default on this machine."""
        return self.default() if callable(self.default) else self.default

    def default_among(self, values: Mapping[str, Any]) -> Any:
        """Return the default, given the values of other options by name."""
        if self.along is not None and values[self.along[0]] == self.along[1]:
            return self.along[2]
        return self.default_value

    @property
    def default_text(self) -> str:
        """The default as shown in documents; a computed one is described by its docstring."""
        if callable(self.default):
            return (self.default.__doc__ or "").strip().rstrip(".")
        if self.along is not None:
            other, value, default = self.along
            return f"{as_text(self.default)}; {as_text(default)} with {PREFIX}{other.upper()}={value}"
        return as_text(self.default)

    @property
    def is_switch(self) -> bool:
        """True if the flag takes no value and has an opposite, --no-...."""
        return self.parse is boolean

    @property
    def flags(self) -> tuple[str, ...]:
        """All spellings of the flag; a switch has an opposite."""
        return (self.flag, "--no-" + self.flag.removeprefix("--")) if self.is_switch else (self.flag,)


def boolean(text: str) -> bool:
    """Parse yes or no."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise ValueError("must be 1 or 0 (also true/false, yes/no, on/off)") from None


def positive(text: str) -> int:
    """Parse an integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def count(text: str) -> int:
    """Parse an integer of at least 0."""
    return 0 if text.strip() == "0" else positive(text)


def share(text: str) -> float:
    """Parse a number of at least 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and below 1")
    return value


def text(given: str) -> str:
    """Strip a text, which must not be empty."""
    if not given.strip():
        raise ValueError("must not be empty")
    return given.strip()


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return a parser that accepts one of `names`."""
    known = list(names)

    def parse(given: str) -> str:
        if given.strip() not in known:
            close = difflib.get_close_matches(given.strip(), known, n=1)
            raise ValueError(f"must be one of {', '.join(known)}" + (f" (did you mean {close[0]}?)" if close else ""))
        return given.strip()

    return parse


def path(text: str) -> Path:
    """Parse a path; ~ is the user's home folder."""
    if not text.strip():
        raise ValueError("must be a path")
    return Path(text).expanduser()


def nearest(word: str, known: list[str], otherwise: str | None = None) -> str:
    """Return a sentence that suggests the known word nearest to `word`; without one, `otherwise` or all known words."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    return otherwise or f"Known: {', '.join(sorted(known))}."
