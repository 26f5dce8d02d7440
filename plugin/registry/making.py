"""From settings to the exchange of one optimizer or tape."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from paceline.exchange import worlds
from paceline.exchange.base import Exchange
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.wire import Wire
from paceline.registry import agreement
from paceline.registry.exchanges import declaration_of

_given = False
_used: set[str] = set()
_explained = False


def given() -> bool:
    """Whether any optimizer or tape of this process was given an exchange that is not synchronous."""
    return _given


def used() -> str:
    """The exchanges of all optimizers and tapes of this process so far, with commas between them."""
    return ",".join(sorted(_used))


def explain() -> None:
    """Take notice that the user was told why the exchange of the variables has no effect in this process."""
    global _explained
    _explained = True


def explained() -> bool:
    """Return True after `explain`."""
    return _explained


def give(chosen: ExchangeSettings) -> ExchangeSettings:
    """`chosen`, which an optimizer or tape is about to use. Raises UserError beside variables that exclude it."""
    global _given
    chosen.check_environment()
    _given = _given or not chosen.synchronous
    _used.add(declaration_of(chosen).word)
    return chosen


def make(chosen: ExchangeSettings, wire: Wire) -> Exchange:
    """The exchange that `chosen` asks for."""
    give(chosen)
    made: Exchange = resolve_name(declaration_of(chosen).implementation)(chosen, wire, agreement)
    return made


def make_watched(chosen: ExchangeSettings, wire: Callable[[Any, str], Wire], settings: Any) -> Exchange:
    """The same over `wire(settings, Declaration.word)`; it forgets whenever the ranks begin anew."""
    made = make(chosen, wire(settings, declaration_of(chosen).word))
    worlds.watch(made)
    return made


def maker(chosen: ExchangeSettings, wire: Callable[[Any, str], Wire]) -> Callable[[Any], Exchange] | None:
    """What `Settings.exchange` is for an optimizer of Keras: makes its exchange. None: Horovod's own."""
    return None if give(chosen).synchronous else lambda settings: make_watched(chosen, wire, settings)
