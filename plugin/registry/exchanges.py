"""Registry of all exchanges.

To add one, write its declaration in its package and a line in DECLARATIONS.
"""

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
# Settings classes by name, exported by the adapters as hvd.Pipelined and so on.
SETTINGS: dict[str, type[ExchangeSettings]] = {one.settings.__name__: one.settings for one in DECLARATIONS}

Function = TypeVar("Function", bound=Callable[..., object])


def named(name: str) -> Declaration:
    """Return the declaration of the exchange `name`, one of NAMES."""
    return next(one for one in DECLARATIONS if name in one.names)


def declaration_of(settings: ExchangeSettings) -> Declaration:
    """Return the declaration of `settings`; settings equivalent to the synchronous exchange give that one."""
    if settings.synchronous:
        return sync_settings.DECLARATION
    return next(one for one in DECLARATIONS if type(settings) is one.settings)


def options_of_exchanges() -> list[Option]:
    """Return the options of all exchanges, in the order of declaration."""
    by_name: dict[str, list[Option]] = {}
    for option in (option for one in DECLARATIONS for option in one.options()):
        by_name.setdefault(option.name, []).append(option)
    return [_joined(options) for options in by_name.values()]


def _joined(options: list[Option]) -> Option:
    """Merge equal `options` of several exchanges, which differ in `needs` and default, into one option."""
    if len(options) == 1:
        return options[0]
    needed = [one.needs[1] for one in options if one.needs is not None]

    def default() -> None: ...

    default.__doc__ = ", ".join(
        f"{one.default_text} with {' and '.join(names)}" for one, names in zip(options, needed, strict=True)
    )
    return dataclasses.replace(options[0], default=default, needs=("exchange", tuple(itertools.chain(*needed))))


def summary() -> str:
    """Return a few words on each exchange."""
    return ", ".join(one.short for one in DECLARATIONS)


def described(tag: int) -> str:
    """Return a description of the in-flight gradients in a saved state with this tag."""
    return next((words for one in DECLARATIONS if (words := one.in_flight(tag))), f"those of an exchange {tag}")


def lists_exchanges(function: Function) -> Function:
    """Decorate a function: the line `{exchanges}` of its docstring becomes a list of all exchanges."""
    text = "; ".join(one.listed() for one in DECLARATIONS) + ". The same on all ranks. None: as PACELINE_EXCHANGE says."
    lines = []
    for line in (function.__doc__ or "").split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        whole = fill(text, 120, initial_indent=indent, subsequent_indent=indent)
        lines.append(whole if line.strip() == "{exchanges}" else line)
    function.__doc__ = "\n".join(lines)
    return function
