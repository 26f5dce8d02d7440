"""Construct the exchange of one optimizer or tape from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
_observe: Callable[[Exchange], Any] | None = None


def given() -> bool:
    """Return True if any optimizer or tape of this process was given an exchange that is not synchronous."""
    return _given


def used() -> str:
    """The exchanges of all optimizers and tapes of this process so far, with commas between them."""
    return ",".join(sorted(_used))


def explain() -> None:
    """Record that the user was notified why PACELINE_EXCHANGE has no effect in this process."""
    global _explained
    _explained = True


def explained() -> bool:
    """Return True after `explain`."""
    return _explained


def give(chosen: ExchangeSettings) -> ExchangeSettings:
    """Return `chosen`, which an optimizer or tape is about to use. Raises UserError if a variable excludes it."""
    global _given
    chosen.check_environment()
    _given = _given or not chosen.synchronous
    _used.add(declaration_of(chosen).word)
    return chosen


def make(chosen: ExchangeSettings, wire: Wire) -> Exchange:
    """Construct the exchange of the settings `chosen`."""
    give(chosen)
    made: Exchange = resolve_name(declaration_of(chosen).implementation)(chosen, wire, agreement)
    if _observe is not None:
        _observe(made)
    return made


def observe_with(observe: Callable[[Exchange], Any] | None) -> None:
    """Have `observe` called for each exchange that is made from now on; None: nothing."""
    global _observe
    _observe = observe


def make_watched(chosen: ExchangeSettings, wire: Callable[[Any, str], Wire], settings: Any) -> Exchange:
    """Construct the exchange over `wire(settings, Declaration.word)`; it resets whenever a new world begins."""
    made = make(chosen, wire(settings, declaration_of(chosen).word))
    worlds.watch(made)
    return made


@dataclass(frozen=True)
class Maker:
    """Function from a Keras optimizer's settings to its exchange, which has the settings `chosen`."""

    chosen: ExchangeSettings
    wire: Callable[[Any, str], Wire]

    def __call__(self, settings: Any) -> Exchange:
        """Construct the exchange."""
        return make_watched(self.chosen, self.wire, settings)


def maker(chosen: ExchangeSettings, wire: Callable[[Any, str], Wire]) -> Maker | None:
    """Return the function that makes the exchange of a Keras optimizer, or None for Horovod's own allreduce."""
    return None if give(chosen).synchronous else Maker(chosen, wire)
