"""What optimizers and tapes have to do when their ranks end: registered here while they live, in the order of use."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Weights
from paceline.native.world import process


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


class _Known:
    """Of a library: who registered, and the process sets that exchanges were made for, whether these live or not."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.sets: list[Any] = []
        self.arrivals: list[Callable[[], Any]] = []  # weak, as those above


def at_end(exchange: Exchange, drain: Callable[[], int], weights: Weights, how: str) -> None:
    """Have `drain()` called when the ranks of the exchange end, while the objects of both methods live."""
    wire = exchange.wire
    known = process(wire.library).of(_Known)
    if wire.process_set not in known.sets:
        known.sets.append(wire.process_set)
    known.entries.append(_Entry(weakref.ref(exchange), weakref.WeakMethod(drain), weakref.WeakMethod(weights), how))


def at_end_wait(library: ctypes.CDLL, wait: Callable[[], None]) -> None:
    """Have `wait()`, for what is on its way to this rank, called when the ranks end, while its object lives."""
    process(library).of(_Known).arrivals.append(weakref.WeakMethod(wait))


def wait_for_arrivals(library: ctypes.CDLL) -> None:
    """Wait for all that `at_end_wait` was given. Raises what waiting raises."""
    known = process(library).of(_Known)
    known.arrivals = [one for one in known.arrivals if one() is not None]
    for one in known.arrivals:
        if (wait := one()) is not None:
            wait()


def process_sets(library: ctypes.CDLL) -> list[int]:
    """Those of this world that this rank has had exchanges in, in ascending order."""
    known = [one for one in process(library).of(_Known).sets if one.process_set_id is not None]
    return sorted({int(one.process_set_id) for one in known if one.included()})


def endings(library: ctypes.CDLL, process_set_id: int) -> list[Ending]:
    """What is to be done in this process set, in the order in which it was registered."""
    found = []
    entries = process(library).of(_Known).entries
    for entry in list(entries):
        exchange, drain, weights = entry.exchange(), entry.drain(), entry.weights()
        if exchange is None or drain is None or weights is None:
            entries.remove(entry)
        elif exchange.wire.process_set.process_set_id == process_set_id:
            found.append(Ending(exchange, drain, weights, entry.how))
    return found
