"""Registry of the final work of optimizers and tapes when their ranks end, in the order of use.

Entries last as long as their optimizer or tape.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Weights
from paceline.native.world import process


class Ending(NamedTuple):
    """Final work of one exchange: `drain()` makes the updates that are left and returns their number.

    `how`: remedy for users, with the same effect.
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


class _Known:
    """Entries of one library, and the process sets that had exchanges, including removed ones."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.sets: list[Any] = []
        self.arrivals: list[Callable[[], Any]] = []  # weak references to the waiting methods


def at_end(exchange: Exchange, drain: Callable[[], int], weights: Weights, how: str) -> None:
    """Register `drain()` to be called when the ranks of the exchange end, while the objects of both methods live."""
    wire = exchange.wire
    known = process(wire.library).of(_Known)
    if wire.process_set not in known.sets:
        known.sets.append(wire.process_set)
    known.entries.append(_Entry(weakref.ref(exchange), weakref.WeakMethod(drain), weakref.WeakMethod(weights), how))


def at_end_wait(library: ctypes.CDLL, wait: Callable[[], None]) -> None:
    """Register `wait()`, which waits for data in flight to this rank, for the ranks' end, while its object lives."""
    process(library).of(_Known).arrivals.append(weakref.WeakMethod(wait))


def wait_for_arrivals(library: ctypes.CDLL) -> None:
    """Call every function registered with `at_end_wait`. Raises what they raise."""
    known = process(library).of(_Known)
    known.arrivals = [one for one in known.arrivals if one() is not None]
    for one in known.arrivals:
        if (wait := one()) is not None:
            wait()


def process_sets(library: ctypes.CDLL) -> list[int]:
    """Return this rank's process sets in this world that had exchanges, in ascending order."""
    known = [one for one in process(library).of(_Known).sets if one.process_set_id is not None]
    return sorted({int(one.process_set_id) for one in known if one.included()})


def endings(library: ctypes.CDLL, process_set_id: int) -> list[Ending]:
    """Return the final work in this process set, in the order of registration."""
    found = []
    entries = process(library).of(_Known).entries
    for entry in list(entries):
        exchange, drain, weights = entry.exchange(), entry.drain(), entry.weights()
        if exchange is None or drain is None or weights is None:
            entries.remove(entry)
        elif exchange.wire.process_set.process_set_id == process_set_id:
            found.append(Ending(exchange, drain, weights, entry.how))
    return found
