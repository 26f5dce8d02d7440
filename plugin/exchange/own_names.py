"""Names of exchanges, unique in a process: twins of one name would be answered with each other's gradients.

Names have to be equal on all ranks, which know nothing of each other's optimizers. So an exchange gets its number in
the order of first use, which ranks of one program share, and never by what happens to be alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from paceline.native.library import world

# By the handle of a library: the names that are taken, with their process sets, in this world of its ranks. A new world
# counts from the beginning: it may have processes that have used no name.
_taken: dict[int, tuple[object, set[tuple[int, str]]]] = {}


def own_number(library: ctypes.CDLL, process_set_id: int, names: Callable[[int], Iterable[str]]) -> int:
    """The least number, from 0 on, for which none of `names(number)` is taken in the process set; these are then."""
    here = world(library)
    known, taken = _taken.get(library._handle, (None, set()))
    if known is not here:
        taken = set()
    _taken[library._handle] = here, taken
    number = 0
    while not taken.isdisjoint(wanted := {(process_set_id, name) for name in names(number)}):
        number += 1
    taken |= wanted
    return number


def own_name(library: ctypes.CDLL, process_set_id: int, name: str, kind: str = "") -> str:
    """`name`, or from its second use in this world on `name` with "_2", "_3" and so on behind it.

    Names of another `kind` are counted by themselves.
    """

    def numbered(number: int) -> str:
        return f"{name}_{number + 1}" if number else name

    return numbered(own_number(library, process_set_id, lambda number: [f"{kind}{numbered(number)}"]))
