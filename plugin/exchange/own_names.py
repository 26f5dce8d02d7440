"""Names of exchanges, unique in a process: twins of one name would be answered with each other's gradients.

Names have to be equal on all ranks, which know nothing of each other's optimizers. So an exchange gets its number in
the order of first use, which ranks of one program share, and never by what happens to be alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from paceline.native.world import world


class _Taken(set[tuple[int, str]]):
    """Names that are taken in a world, with their process sets. A new one may have processes that have used none."""


def own_number(library: ctypes.CDLL, process_set_id: int, names: Callable[[int], Iterable[str]]) -> int:
    """The least number, from 0 on, for which none of `names(number)` is taken in the process set; these are then."""
    taken = world(library).of(_Taken)
    number = 0
    while not taken.isdisjoint(wanted := {(process_set_id, name) for name in names(number)}):
        number += 1
    taken |= wanted
    return number


def own_name(library: ctypes.CDLL, process_set_id: int, name: str) -> str:
    """`name`, or from its second use in this world on `name` with "_2", "_3" and so on behind it."""

    def numbered(number: int) -> str:
        return f"{name}_{number + 1}" if number else name

    return numbered(own_number(library, process_set_id, lambda number: [numbered(number)]))
