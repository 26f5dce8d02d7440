"""Check that ranks have gradients of the same variables in an update; otherwise they would wait for ever.

Whether a gradient is None is fixed when a step is traced. So ranks compare the variables with gradients before the
first step with them. Compiled steps run no Python; therefore an elastic job, whose ranks begin at different times,
compares nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from paceline import variables
from paceline.errors import UsageError
from paceline.native.agreement import extremes, not_met
from paceline.native.library import loaded
from paceline.native.world import process

# Data may take long before the first update. Later, the other ranks are in the same step.
FIRST_LIMIT_S, LIMIT_S = 24 * 3600.0, 600.0
_REMEDY = (
    "Have the loss of every rank depend on the same variables in each step, by 0 * keras.ops.sum(variable) where it "
    "would not, or freeze those that have no gradient."
)


class _Known(set[tuple[tuple[int, ...], str, tuple[int, ...]]]):
    """Ranks of process sets, names, and indices of variables that all these ranks have had gradients of at once."""


def check(library_name: str, process_set: Any, name: str, indices: Sequence[int]) -> None:
    """Wait for all ranks the first time that this rank has gradients of these variables under `name`.

    Raises UsageError on all ranks if their variables differ, UserError if a rank does not arrive within LIMIT_S.
    """
    library = loaded(library_name)
    # By ranks: ids of process sets are reused, and all ranks of a set must meet at the same calls.
    known, key = process(library).of(_Known), (tuple(process_set.ranks or ()), name, tuple(indices))
    if key in known or variables.elastic():
        return
    limit_s = LIMIT_S if any(one[:2] == key[:2] for one in known) else FIRST_LIMIT_S
    own = [len(indices), zlib.crc32(repr(key[-1]).encode())]
    met = extremes(library, process_set.process_set_id, f"paceline.gradients.{name}", own, limit_s)
    rank = library.horovod_rank()
    if met.reason:
        where = f"an update of {name} with gradients of {own[0]} variables, for the first time of these"
        raise not_met(library, where, met.reason, _REMEDY)
    if met.least != met.most:
        raise UsageError(
            f"The ranks have gradients of different variables in an update of {name}: of {met.least[0]} to "
            f"{met.most[0]} variables; rank {rank} of {own[0]}.",
            _REMEDY,
        )
    known.add(key)
