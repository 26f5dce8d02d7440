"""Gradients in flight through an elastic reset: taken before the ranks shut down, put back when they are up again.

A reset ends the world of the ranks and begins another one, with other ranks. Horovod restores weights only. What is put
back must be equal on all ranks: those that are new get it when the elastic state is synchronised, and there is no such
synchronisation where ranks were only removed.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from paceline import variables
from paceline.errors import UserError
from paceline.log import log
from paceline.native.agreement import extremes
from paceline.native.world import process

_LABEL = "elastic.in_flight"
# What a rank has after a reset: all it had, nothing because it is new, or not what it had.
_ALL, _NEW, _LOST = 2, 1, 0


class _Entry(NamedTuple):
    take: weakref.WeakMethod[Callable[[], Any]]
    put: weakref.WeakMethod[Callable[[Any], None]]


class _Carried:
    """Entries of one library, and what was taken from each; None: nothing was taken before this world."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.taken: list[tuple[_Entry, Any]] | None = None
        self.lost = False


def carry_over(library: ctypes.CDLL, take: Callable[[], Any], put: Callable[[Any], None]) -> None:
    """Register the methods of an object: `take()` returns what is in flight, and `put()` gets it after the reset."""
    carried = process(library).of(_Carried)
    carried.entries = [one for one in carried.entries if one.take() is not None]
    carried.entries.append(_Entry(weakref.WeakMethod(take), weakref.WeakMethod(put)))


def before_reset(library: ctypes.CDLL) -> None:
    """Take what is in flight, waiting for it. After a failure it is that of the committed state, which is there."""
    carried = process(library).of(_Carried)
    carried.taken, carried.lost = [], False
    for entry in carried.entries:
        if (take := entry.take()) is None:
            continue
        try:
            carried.taken.append((entry, take()))
        except (UserError, RuntimeError) as error:  # a rank was lost in the reset
            carried.lost = True
            log(f"rank {library.horovod_rank()}: gradients in flight could not be kept: {error}")


def after_init(library: ctypes.CDLL) -> None:
    """Put back what was taken, if no rank has lost it. All ranks of an elastic job call it."""
    if not variables.elastic():
        return
    carried = process(library).of(_Carried)
    taken, carried.taken = carried.taken, None
    mine = _NEW if taken is None else _LOST if carried.lost else _ALL
    met = extremes(library, 0, _LABEL, [mine])
    if taken is None or met.reason or met.least[0] == _LOST:
        return
    for entry, state in taken:
        if (put := entry.put()) is not None:
            put(state)
