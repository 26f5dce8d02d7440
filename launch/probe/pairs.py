"""Duration of a message between two ranks, over Horovod's connections."""

from __future__ import annotations

import ctypes

from paceline.errors import UserError
from paceline.native.prototypes import ERROR_BYTES

LIMIT_S = 60.0
LEAST_BYTES = 8
_WORLD = 0  # the process set of all ranks


def measure_pair(library: ctypes.CDLL, first: int, second: int, size_bytes: int, rounds: int) -> float:
    """Seconds from one rank to the other: half of a round trip, measured on `first`; 0 on other ranks.

    All ranks call it at the same time. `size_bytes`: at least LEAST_BYTES. Raises UserError if a message is lost or a
    rank does not call within LIMIT_S.
    """
    error = ctypes.create_string_buffer(ERROR_BYTES)
    seconds: float = library.horovod_paceline_ping(
        _WORLD, first, second, rounds, size_bytes, LIMIT_S, error, ERROR_BYTES
    )
    if seconds < 0:
        raise UserError(
            f"From rank {first} to rank {second}: {error.value.decode(errors='replace')}",
            "`paceline doctor` looks for what keeps ranks from each other.",
        )
    return seconds if library.horovod_rank() == first else 0.0
