"""Who owns which names in Horovod's library, so that no two optimizers take each other's results out of it.

Names that are owned are registered with their owner's exchange.

What is in flight under a name stays in the library until its optimizer takes it out. When an optimizer is collected
without, its names are let go: at once where nothing travels, else when another optimizer claims names.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from paceline.errors import UsageError
from paceline.native.in_flight import SETTLE_LIMIT_S, InFlight

# How long a rank that gives up waits in all for what travels.
RELEASE_LIMIT_S = 20.0
_SHORTEST_S = 0.001
# release(full name, limit in seconds): drop what the library has; False if it still travelled then and was kept.
Release = Callable[[str, float], bool]
Key = tuple[int, str]  # process set, name


class _Known:
    """Of a library: by name its owner, or how to release what an owner left that was collected meanwhile."""

    def __init__(self) -> None:
        self.owners: dict[Key, weakref.ref[ChannelOwner]] = {}
        self.abandoned: dict[Key, Release] = {}


class ChannelOwner:
    """The names that one optimizer has something in flight under."""

    def __init__(self, in_flight: InFlight, exchange: tuple[Any, ...], release: Release | None = None) -> None:
        """`exchange`: what its names are registered with, the word and the settings (paceline.native.exchanges).

        `release`: that of `in_flight`, or another, which must not hold the optimizer.
        """
        self._in_flight = in_flight
        self._set, self._known = in_flight.process_set_id, in_flight.process.of(_Known)
        self._exchange = exchange
        self._empty = release or in_flight.release
        self._release = _and_unregister(in_flight, self._empty)
        self._names: set[str] = set()
        self._world: object = None
        # Nothing is left to do at the end of a process, when the library may be gone.
        weakref.finalize(self, _abandon, self._known, self._set, self._names, self._release).atexit = False

    def claim(self, names: Iterable[str], label: str, refuse: bool = True) -> None:
        """Own `names` from here on, empty, and register them; those that are owned already keep what they have.

        `label`: what users call them. Raises UsageError if another optimizer has owned one of them since the ranks
        began, unless `refuse` is false: what it has in flight is dropped then.
        """
        self._world = self._in_flight.process.world
        for name in names:
            if name in self._names:
                self._in_flight.register(name, *self._exchange)  # a process set may have begun anew
                continue
            key = (self._set, name)
            known = self._known.owners.get(key)
            other = known() if known is not None else None
            if refuse and other is not None and other._world is self._world:
                raise UsageError(
                    f"Two optimizers of rank {self._in_flight.rank} use the name {label!r}; the other has gradients "
                    "in flight under it.",
                    "Give their named_parameters different prefixes, or drain() the other one on all ranks first.",
                )
            if other is not None:
                other._names.discard(name)
            if known is not None or key in self._known.abandoned:
                self._known.abandoned.pop(key, None)
                self._release(name, SETTLE_LIMIT_S)
            self._in_flight.register(name, *self._exchange)
            self._known.owners[key] = weakref.ref(self)
            self._names.add(name)
        _let_go_of(self._known.abandoned)

    def empty(self) -> None:
        """Drop all that is in flight under the names, waiting for what travels; they stay owned and registered."""
        for name in self._names:
            self._empty(name, SETTLE_LIMIT_S)

    def release(self) -> None:
        """Drop all that is in flight under the names, waiting for what travels; they are free then.

        The wait for all of them has one limit: what ranks with another exchange never hand in, never arrives.
        """
        end = time.monotonic() + RELEASE_LIMIT_S
        for name in self._names:
            self._release(name, max(end - time.monotonic(), _SHORTEST_S))
            self._known.owners.pop((self._set, name), None)
        self._names.clear()


def _and_unregister(in_flight: InFlight, release: Release) -> Release:
    def let_go(name: str, limit_s: float) -> bool:
        if not release(name, limit_s):
            return False
        in_flight.unregister(name)
        return True

    return let_go


def _abandon(known: _Known, process_set_id: int, names: set[str], release: Release) -> None:
    # Runs wherever an optimizer is collected: it must not wait.
    for name in names:
        key = (process_set_id, name)
        known.owners.pop(key, None)
        if not release(name, 0.0):
            known.abandoned[key] = release


def _let_go_of(abandoned: dict[Key, Release]) -> None:
    for key, release in list(abandoned.items()):
        if release(key[-1], 0.0):
            abandoned.pop(key, None)
