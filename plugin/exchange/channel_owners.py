"""Ownership of names in Horovod's library, so that no optimizer takes another one's results.

Owned names are registered with their owner's exchange. Results in flight under a name stay in the library until its
optimizer takes them. If an optimizer is collected before that, its names are released: at once if nothing is in flight,
else when another optimizer claims names.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from paceline.errors import UsageError
from paceline.native.in_flight import SETTLE_LIMIT_S, InFlight

# Total timeout of a rank that aborts, for what is in flight.
RELEASE_LIMIT_S = 20.0
_SHORTEST_S = 0.001
# release(full name, limit in seconds): drop the library's results; False if some were still in flight and were kept.
Release = Callable[[str, float], bool]
Key = tuple[int, str]  # process set, name


class _Known:
    """Owner of each name in a library; `abandoned` has the release functions of names whose owner was collected."""

    def __init__(self) -> None:
        self.owners: dict[Key, weakref.ref[ChannelOwner]] = {}
        self.abandoned: dict[Key, Release] = {}


class ChannelOwner:
    """The names under which one optimizer has something in flight."""

    def __init__(self, in_flight: InFlight, exchange: tuple[Any, ...], release: Release | None = None) -> None:
        """Construct an owner without names.

        `exchange`: the word and settings with which its names are registered (paceline.native.exchanges). `release`:
        that of `in_flight`, or another one, which must not hold the optimizer.
        """
        self._in_flight = in_flight
        self._set, self._known = in_flight.process_set_id, in_flight.process.of(_Known)
        self._exchange = exchange
        self._empty = release or in_flight.release
        self._release = _and_unregister(in_flight, self._empty)
        self._names: set[str] = set()
        self._world: object = None
        # Not at exit: nothing is left to do, and the library may be unloaded.
        weakref.finalize(self, _abandon, self._known, self._set, self._names, self._release).atexit = False

    def claim(self, names: Iterable[str], label: str, refuse: bool = True) -> None:
        """Own `names` from here on, empty, and register them; names owned already keep their results.

        `label`: their name for users. Raises UsageError if another optimizer has owned one of them in this world,
        unless `refuse` is false: then its results in flight are dropped.
        """
        self._world = self._in_flight.process.world
        for name in names:
            if name in self._names:
                self._in_flight.register(name, *self._exchange)  # the process set may be a new one of the same number
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

    def free(self, names: Iterable[str]) -> None:
        """Make `names` that an optimizer of an earlier world still owns plain names again, without its exchange."""
        for name in names:
            key = (self._set, name)
            known = self._known.owners.get(key)
            other = known() if known is not None else None
            if other is not None and other._world is not self._in_flight.process.world:
                other._names.discard(name)
                self._known.owners.pop(key)
                self._release(name, SETTLE_LIMIT_S)

    def empty(self) -> None:
        """Drop all that is in flight under the names, after waiting for it; they stay owned and registered."""
        for name in self._names:
            self._empty(name, SETTLE_LIMIT_S)

    def release(self) -> None:
        """Drop all that is in flight under the names, after waiting for it, and release the names.

        One limit holds for the whole wait: results that depend on ranks with another exchange never arrive.
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
    # Runs inside the garbage collector, so it must not wait.
    for name in names:
        key = (process_set_id, name)
        known.owners.pop(key, None)
        if not release(name, 0.0):
            known.abandoned[key] = release


def _let_go_of(abandoned: dict[Key, Release]) -> None:
    for key, release in list(abandoned.items()):
        if release(key[-1], 0.0):
            abandoned.pop(key, None)
