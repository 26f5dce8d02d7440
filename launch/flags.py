"""Flags made from the declared options, and the separation of our flags from horovodrun's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from paceline import config, renamed
from paceline.errors import UserError

# Units as help texts show them in place of a value.
_UNITS = {"s": "seconds", "ms": "milliseconds"}


def click_options(scope: str, hidden: Collection[str] = ()) -> list[click.Option]:
    """Return a click option for every declared option of `scope`. Values stay text: config.read parses them.

    `hidden`: names of options that help texts omit, because the command has another for the purpose.
    """
    made = []
    for option in config.OPTIONS:
        if option.scope != scope:
            continue
        help_text = f"{option.meaning} (default: {option.default_text}; variable: {option.variable})"
        if option.is_switch:
            names, kind = ["/".join(option.flags), option.name], {"is_flag": True, "type": bool}
        else:
            unit = _UNITS.get(option.unit, option.unit or option.kind)
            names, kind = [option.flag, option.name], {"metavar": unit.upper(), "type": str}
        hide = option.name in hidden
        made.append(click.Option(names, default=None, help=help_text, hidden=hide, **kind))  # type: ignore[arg-type]
    return made


def with_options(scope: str, hidden: Collection[str] = ()) -> Any:
    """Decorator that gives a click command the flags of `scope`; see click_options."""

    def decorate(command: click.Command) -> click.Command:
        command.params.extend(click_options(scope, hidden))
        return command

    return decorate


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the declared options that were given among a click command's parameters, as text by name."""
    declared = {option.name for option in config.OPTIONS}
    return {name: config.as_text(value) for name, value in values.items() if name in declared and value is not None}


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return flags as the variables that carry them to the ranks."""
    return {option.variable: given[option.name] for option in config.OPTIONS if option.name in given}


@dataclass
class Split:
    """A command line split into our flags, horovodrun's, and the command of the ranks."""

    ours: list[str] = field(default_factory=list)
    theirs: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def split(arguments: Sequence[str], ours: Mapping[str, int], theirs: Mapping[str, int], program: str) -> Split:
    """Split `arguments`.

    `ours` and `theirs`: number of values after each flag. The command begins at the first word that is neither a flag
    nor a flag's value, or after `--`; it is not examined. horovodrun's conventions apply: `--flag=value`, `-p22`, and
    unambiguous abbreviations of long flags. Raises UserError for an unknown flag.
    """
    parts = Split()
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            parts.command = list(arguments[at + 1 :])
            break
        if not word.startswith("-"):
            parts.command = list(arguments[at:])
            break
        name, equals, _ = word.partition("=")
        if name in ours:
            owner, values = parts.ours, ours[name]
        else:
            owner, values = parts.theirs, _values_of_theirs(word, name, ours, theirs, program)
        taken = 1 if equals else 1 + values
        owner.extend(arguments[at : at + taken])
        at += taken
    return parts


def _values_of_theirs(word: str, name: str, ours: Mapping[str, int], theirs: Mapping[str, int], program: str) -> int:
    if name in theirs:
        return theirs[name]
    if name.startswith("--"):
        beginning_so = [flag for flag in theirs if flag.startswith(name)]
        if len(beginning_so) == 1:
            return theirs[beginning_so[0]]
    elif theirs.get(word[:2]):  # -p22: the value is attached
        return 0
    raise UserError(
        f"Neither {program} nor horovodrun has an option {name}.",
        renamed.flag(name)
        or config.nearest(
            name,
            [*ours, *theirs],
            f"`{program} --help` lists Paceline's options, `horovodrun --help` Horovod's.",
        ),
    )
