"""Names of exchanges, unique in a process: twins of one name would be answered with each other's gradients.

Names have to be equal on all ranks, which know nothing of each other's optimizers. So a name gets its number in the
order of first use, which ranks of one program share, and never by what happens to be alive.
"""

from __future__ import annotations

import ctypes

# Taken names, by the handle of the library whose ranks use them.
_taken: dict[int, set[tuple[int, str]]] = {}


def own_name(library: ctypes.CDLL, process_set_id: int, name: str) -> str:
    """`name`, or from its second use in this world on `name` with "_2", "_3" and so on behind it."""
    taken = _taken.setdefault(library._handle, set())
    own, number = name, 1
    while (process_set_id, own) in taken:
        number += 1
        own = f"{name}_{number}"
    taken.add((process_set_id, own))
    return own


def forget_names(library: ctypes.CDLL) -> None:
    """The ranks of `library` begin anew, some with processes that have used no name: all count from the beginning."""
    _taken.pop(library._handle, None)
