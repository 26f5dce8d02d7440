"""Names of synchronous tapes: tapes with one name and different sources are numbered.

A tape is made again in every step, so its sources identify it. A gradient is a collective, so all ranks meet the lists
of sources in the same order.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.exchange.own_names import own_number
from paceline.native.library import loaded
from paceline.native.world import world


class _Known(dict[tuple[str, int], list[tuple[list[Any], str]]]):
    """Sources (None for a tensor) and numbered name of each tape, by name and process set, while the variables live."""


def _dead(references: list[Any]) -> bool:
    return any(one is not None and one() is None for one in references)


def numbered_name(name: str, process_set_id: int, sources: Sequence[Any]) -> str:
    """Return `name`, with "_2", "_3" appended for the second, third list of `sources` in this world."""
    library = loaded("tensorflow")
    mine = [one if isinstance(one, tf.Variable) else None for one in sources]
    known = world(library).of(_Known).setdefault((name, process_set_id), [])
    known[:] = [one for one in known if not _dead(one[0])]
    for references, found in known:
        if len(references) == len(mine) and all(
            (None if reference is None else reference()) is one for reference, one in zip(references, mine, strict=True)
        ):
            return found
    # Numbers of deleted variables stay in use: ranks collect garbage at different times.
    number = own_number(library, process_set_id, lambda number: [f"tape {name} {number}"])
    found = f"{name}_{number + 1}" if number else name
    known.append(([None if one is None else weakref.ref(one) for one in mine], found))
    return found
