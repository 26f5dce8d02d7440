"""Variables that a Keras optimizer keeps for each trained variable, such as moments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Lists of the optimizer that hold other things than slots.
_NO_SLOTS = ("_trainable_variables", "_variables")


def slots_of(optimizer: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the list's name, the trained variable's index, and the slot, of each list with an entry per variable."""
    trained, tracked = len(optimizer._trainable_variables), {id(one) for one in optimizer._variables}
    for name, many in sorted(vars(optimizer).items()):
        if name in _NO_SLOTS or not isinstance(many, list) or len(many) != trained:
            continue
        for index, one in enumerate(many):
            if id(one) in tracked:
                yield name, index, one
