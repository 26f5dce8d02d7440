"""Names of exchanges, unique in a process: with equal names, optimizers would receive each other's gradients.

Names must be equal on all ranks, which do not know each other's optimizers. An exchange therefore gets its number in
the order of first use, which is the same on all ranks of a program, and never by which objects are alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from paceline.native.world import world


class _Taken(set[tuple[int, str]]):
    """Names in use in a world, with their process sets. In a new world some processes may have used none."""


def own_number(library: ctypes.CDLL, process_set_id: int, names: Callable[[int], Iterable[str]]) -> int:
    """Claim all of `names(number)` in the process set, for the smallest number with which none is taken; return it."""
    taken = world(library).of(_Taken)
    number = 0
    while not taken.isdisjoint(wanted := {(process_set_id, name) for name in names(number)}):
        number += 1
    taken |= wanted
    return number


def own_name(library: ctypes.CDLL, process_set_id: int, name: str) -> str:
    """Return `name`; from its second use in this world on, append "_2", "_3" and so on."""

    def numbered(number: int) -> str:
        return f"{name}_{number + 1}" if number else name

    return numbered(own_number(library, process_set_id, lambda number: [numbered(number)]))
