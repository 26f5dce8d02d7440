"""What all ranks say, by rank: a few whole numbers, in the thread of a caller."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from paceline.errors import UserError, ranks_lost
from paceline.native.interruptible import interruptible
from paceline.native.library import ended
from paceline.native.prototypes import ERROR_BYTES

MOST = (1 << 52) - 1  # with as much added to them they travel as float64


def everyone(library: ctypes.CDLL, name: str, own: Sequence[int], limit_s: float, remedy: str) -> list[tuple[int, ...]]:
    """Each rank's `own`, from 0 to MOST and equally many, by rank; all ranks call it under one `name`.

    Raises UserError with the reason and `remedy` where some do not within `limit_s`.
    """
    rank, size, count = int(library.horovod_rank()), int(library.horovod_size()), len(own)
    # Each has a place of its own; the largest number in a place is the one that its rank wrote there.
    values, least, most = ((ctypes.c_int64 * (size * count))() for _ in range(3))
    values[rank * count : (rank + 1) * count] = list(own)
    error = ctypes.create_string_buffer(ERROR_BYTES)
    agree = library.horovod_paceline_agree_min_max
    place = (0, name.encode(), size * count)
    if interruptible(lambda: agree(*place, values, least, most, limit_s, error, ERROR_BYTES)) != 0:
        kind = ranks_lost if ended(library) else UserError
        raise kind(f"Rank {rank} waited for all ranks at {name}: {error.value.decode(errors='replace')}.", remedy)
    return [tuple(most[one * count : (one + 1) * count]) for one in range(size)]
