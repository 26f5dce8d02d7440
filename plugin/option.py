"""How an option of Paceline is declared, and what turns its text into a value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.variables import PREFIX as PREFIX


def as_text(value: Any) -> str:
    """A value as it would be written in a variable or on the command line; "none" where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def whether_given(value: Any) -> str:
    """Whether there is a value, in a word."""
    return "not given" if value is None else "given"


@dataclass(frozen=True)
class Option:
    """One option.

    `parse` turns text into the value and raises ValueError with the rule that the text breaks. `needs`: the option, and
    those of its values, that this one says more about and has no effect without; no values: any, if it is given at all.
    `along`: another option, a value of it, and the default of this one where the other has that value.
    `shared`: the text of a value that must be equal on all ranks; None: each rank may have a value of its own.
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
        """The default on the machine at hand."""
        return self.default() if callable(self.default) else self.default

    def default_among(self, values: Mapping[str, Any]) -> Any:
        """The default where other options have these values, by name."""
        if self.along is not None and values[self.along[0]] == self.along[1]:
            return self.along[2]
        return self.default_value

    @property
    def default_text(self) -> str:
        """The default as documents show it; a computed one is described by its docstring."""
        if callable(self.default):
            return (self.default.__doc__ or "").strip().rstrip(".")
        if self.along is not None:
            other, value, default = self.along
            return f"{as_text(self.default)}; {as_text(default)} with {PREFIX}{other.upper()}={value}"
        return as_text(self.default)

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value and has an opposite, --no-...."""
        return self.parse is boolean

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling of the flag: a switch has an opposite."""
        return (self.flag, "--no-" + self.flag.removeprefix("--")) if self.is_switch else (self.flag,)


def boolean(text: str) -> bool:
    """Yes or no."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise ValueError("must be 1 or 0 (also true/false, yes/no, on/off)") from None


def positive(text: str) -> int:
    """A whole number from 1 up."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def count(text: str) -> int:
    """A whole number from 0 up."""
    return 0 if text.strip() == "0" else positive(text)


def share(text: str) -> float:
    """A number from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and below 1")
    return value


def text(given: str) -> str:
    """Any, but not empty."""
    if not given.strip():
        raise ValueError("must not be empty")
    return given.strip()


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """One of `names`."""
    known = list(names)

    def parse(given: str) -> str:
        if given.strip() not in known:
            close = difflib.get_close_matches(given.strip(), known, n=1)
            raise ValueError(f"must be one of {', '.join(known)}" + (f" (did you mean {close[0]}?)" if close else ""))
        return given.strip()

    return parse


def path(text: str) -> Path:
    """A path; ~ is the user's folder."""
    if not text.strip():
        raise ValueError("must be a path")
    return Path(text).expanduser()


def nearest(word: str, known: list[str], otherwise: str | None = None) -> str:
    """A sentence that names the known word nearest to `word`; if none is near, `otherwise` or a list of them all."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    return otherwise or f"Known: {', '.join(sorted(known))}."
