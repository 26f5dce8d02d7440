"""All exchanges. To add one, write its declaration in its room and a line here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from textwrap import fill
from typing import TypeVar

from paceline.exchange import sync_settings
from paceline.exchange.declaration import Declaration, ExchangeSettings
from paceline.local import settings as local_settings
from paceline.option import Option
from paceline.partial import settings as partial_settings
from paceline.pipelined import settings as pipelined_settings
from paceline.split import settings as split_settings

DECLARATIONS: tuple[Declaration, ...] = (
    sync_settings.DECLARATION,
    pipelined_settings.DECLARATION,
    partial_settings.DECLARATION,
    local_settings.DECLARATION,
    split_settings.DECLARATION,
)

NAMES = tuple(name for one in DECLARATIONS for name in one.names)
# Their classes by name: what the adapters offer as hvd.Pipelined and so on; and those that every framework has.
SETTINGS: dict[str, type[ExchangeSettings]] = {one.settings.__name__: one.settings for one in DECLARATIONS}
SHARED_SETTINGS = {name: one for name, one in SETTINGS.items() if not one.torch_alone}

Function = TypeVar("Function", bound=Callable[..., object])


def named(name: str) -> Declaration:
    """The exchange that `name` stands for, one of NAMES."""
    return next(one for one in DECLARATIONS if name in one.names)


def declaration_of(settings: ExchangeSettings) -> Declaration:
    """The exchange that `settings` ask for; those that mean the synchronous one are the synchronous one's."""
    if settings.synchronous:
        return sync_settings.DECLARATION
    return next(one for one in DECLARATIONS if type(settings) is one.settings)


def options_of_exchanges() -> list[Option]:
    """The options that exchanges have, in the order of declaration."""
    by_name: dict[str, list[Option]] = {}
    for option in (option for one in DECLARATIONS for option in one.options()):
        by_name.setdefault(option.name, []).append(option)
    return [_joined(options) for options in by_name.values()]


def _joined(options: list[Option]) -> Option:
    """The option of equal `options`, each of another exchange and with a default of its own."""
    if len(options) == 1:
        return options[0]
    needed = [one.needs[1] for one in options if one.needs is not None]

    def default() -> None: ...

    default.__doc__ = ", ".join(
        f"{one.default_text} with {' and '.join(names)}" for one, names in zip(options, needed, strict=True)
    )
    return dataclasses.replace(options[0], default=default, needs=("exchange", tuple(itertools.chain(*needed))))


def summary() -> str:
    """The exchanges in a few words each."""
    return ", ".join(one.short for one in DECLARATIONS)


def described(tag: int) -> str:
    """What a saved state with this tag has in flight."""
    return next((words for one in DECLARATIONS if (words := one.in_flight(tag))), f"those of an exchange {tag}")


def lists_exchanges(function: Function) -> Function:
    """A decorator: the line `{exchanges}` of the docstring becomes a list of all exchanges."""
    text = "; ".join(one.listed() for one in DECLARATIONS) + ". The same on all ranks. None: as PACELINE_EXCHANGE says."
    lines = []
    for line in (function.__doc__ or "").split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        whole = fill(text, 120, initial_indent=indent, subsequent_indent=indent)
        lines.append(whole if line.strip() == "{exchanges}" else line)
    function.__doc__ = "\n".join(lines)
    return function
