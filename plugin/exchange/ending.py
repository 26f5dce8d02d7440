"""What optimizers and tapes have to do when their ranks end: registered here while they live, in the order of use."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Weights


class Ending(NamedTuple):
    """What is to be done for one exchange: `drain()` makes the updates that are left and says how many those were.

    `how`: how users do the same.
    """

    exchange: Exchange
    drain: Callable[[], int]
    weights: Weights
    how: str


class _Entry(NamedTuple):
    exchange: weakref.ref[Exchange]
    drain: Callable[[], Any]  # weak: returns the method, or None
    weights: Callable[[], Any]
    how: str


_entries: list[_Entry] = []
# Process sets that exchanges were made for in this process, by library, whether these live or not.
_sets: dict[int, list[Any]] = {}


def at_end(exchange: Exchange, drain: Callable[[], int], weights: Weights, how: str) -> None:
    """Have `drain()` called when the ranks of the exchange end, while the objects of both methods live."""
    wire = exchange.wire
    known = _sets.setdefault(wire.library._handle, [])
    if wire.process_set not in known:
        known.append(wire.process_set)
    _entries.append(_Entry(weakref.ref(exchange), weakref.WeakMethod(drain), weakref.WeakMethod(weights), how))


def process_sets(library: ctypes.CDLL) -> list[int]:
    """Those of this world that this rank has had exchanges in, in ascending order."""
    known = [one for one in _sets.get(library._handle, []) if one.process_set_id is not None]
    return sorted({int(one.process_set_id) for one in known if one.included()})


def endings(library: ctypes.CDLL, process_set_id: int) -> list[Ending]:
    """What is to be done in this process set, in the order in which it was registered."""
    found = []
    for entry in list(_entries):
        exchange, drain, weights = entry.exchange(), entry.drain(), entry.weights()
        if exchange is None or drain is None or weights is None:
            _entries.remove(entry)
        elif (
            exchange.wire.library._handle == library._handle
            and exchange.wire.process_set.process_set_id == process_set_id
        ):
            found.append(Ending(exchange, drain, weights, entry.how))
    return found
