"""Agreement between ranks on integers, compared in the thread of a caller that waits for all ranks.

Each agreement needs a label that no other one has at the same time; all ranks pass the same number of integers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import UsageError, UserError, ranks_lost
from paceline.native.interruptible import interruptible
from paceline.native.library import ended
from paceline.native.prototypes import ERROR_BYTES

# Timeout of a rank that waits for the others.
MEET_LIMIT_S = 60.0
# Remedy where exchanges do not meet.
SAME_EXCHANGE = "Give all ranks the same exchange, and call drain() or discard() on all of them after the same update."
MOST = (1 << 52) - 1  # core sends a number plus an offset of this size as float64


class Met(NamedTuple):
    """Minimum and maximum of each number over the ranks; `reason`: why the ranks did not meet, or ""."""

    least: list[int]
    most: list[int]
    reason: str


def extremes(
    library: ctypes.CDLL, process_set_id: int, label: str, values: Sequence[int], limit_s: float | None = None
) -> Met:
    """Wait for all ranks of the process set to call this with the same `label`, for `limit_s` (None: MEET_LIMIT_S)."""
    limit_s = MEET_LIMIT_S if limit_s is None else limit_s
    count = len(values)
    own, least, most = ((ctypes.c_int64 * count)(*values) for _ in range(3))
    error = ctypes.create_string_buffer(ERROR_BYTES)
    agree, place = library.horovod_paceline_agree_min_max, (process_set_id, label.encode(), count)
    done = interruptible(lambda: agree(*place, own, least, most, limit_s, error, ERROR_BYTES))
    return Met(list(least), list(most), error.value.decode(errors="replace") if done != 0 else "")


def agree(
    library: ctypes.CDLL, process_set_id: int, label: str, values: Sequence[int], meaning: str, remedy: str
) -> None:
    """Wait for all ranks to call this with the same `values`; `meaning` describes them in errors.

    Raises:
        UsageError: with `remedy`, if some ranks have other values.
        UserError: with the reason, if some ranks do not call it within MEET_LIMIT_S; it is a HorovodInternalError, too,
            if the world has ended.
    """
    met = extremes(library, process_set_id, label, values)
    if met.reason:
        raise not_met(library, f"{label} ({meaning}: {list(values)})", met.reason, remedy)
    if met.least != met.most:
        raise UsageError(
            f"The ranks differ at {label}: {meaning} are from {met.least} to {met.most}; rank {library.horovod_rank()} "
            f"has {list(values)}.",
            remedy,
        )


def everyone(
    library: ctypes.CDLL, label: str, own: Sequence[int], remedy: str, limit_s: float | None = None
) -> list[tuple[int, ...]]:
    """Return the numbers `own` of each rank, from 0 to MOST, by rank. Raises UserError as `agree` does."""
    rank, size, count = int(library.horovod_rank()), int(library.horovod_size()), len(own)
    # Each rank writes only its own places; the maximum of a place over the ranks is the number written there.
    places = [0] * (size * count)
    places[rank * count : (rank + 1) * count] = list(own)
    met = extremes(library, 0, label, places, limit_s)
    if met.reason:
        raise not_met(library, label, met.reason, remedy)
    return [tuple(met.most[one * count : (one + 1) * count]) for one in range(size)]


def not_met(library: ctypes.CDLL, where: str, reason: str, remedy: str) -> Exception:
    """Return the error of a rank that waited without effect; a HorovodInternalError, too, if the world has ended."""
    kind = ranks_lost if ended(library) else UserError
    return kind(f"Rank {library.horovod_rank()} waited for all ranks at {where}: {reason}", remedy)
