"""What ranks agree on: whole numbers, compared in the thread of a caller that waits for all of them.

An agreement has a label that no other has at that time, and all ranks give it equally many numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import UsageError, UserError, ranks_lost
from paceline.native.interruptible import interruptible
from paceline.native.library import ended
from paceline.native.prototypes import ERROR_BYTES

# How long a rank waits for the others to do the same.
MEET_LIMIT_S = 60.0
# What to do where exchanges do not meet.
SAME_EXCHANGE = "Give all ranks the same exchange, and call drain() or discard() on all of them after the same update."
MOST = (1 << 52) - 1  # with as much added to them numbers travel as float64


class Met(NamedTuple):
    """The least and the most of each number over the ranks; `reason`: why they did not meet, or ""."""

    least: list[int]
    most: list[int]
    reason: str


def extremes(
    library: ctypes.CDLL, process_set_id: int, label: str, values: Sequence[int], limit_s: float | None = None
) -> Met:
    """Wait for all ranks of the process set to call this under one `label`; for MEET_LIMIT_S unless given."""
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
    """Wait for all ranks to call this with the same `values`, which are `meaning`.

    Raises UsageError with `remedy` where some have other values, UserError with the reason where some do not come
    within MEET_LIMIT_S; where the world has ended that is a HorovodInternalError, too.
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
    """Each rank's `own`, from 0 to MOST, by rank. Raises UserError as `agree` where not all ranks come."""
    rank, size, count = int(library.horovod_rank()), int(library.horovod_size()), len(own)
    # Each has a place of its own; the largest number in a place is the one that its rank wrote there.
    places = [0] * (size * count)
    places[rank * count : (rank + 1) * count] = list(own)
    met = extremes(library, 0, label, places, limit_s)
    if met.reason:
        raise not_met(library, label, met.reason, remedy)
    return [tuple(met.most[one * count : (one + 1) * count]) for one in range(size)]


def not_met(library: ctypes.CDLL, where: str, reason: str, remedy: str) -> Exception:
    """The error of a rank that waited in vain: a HorovodInternalError, too, where the world has ended."""
    kind = ranks_lost if ended(library) else UserError
    return kind(f"Rank {library.horovod_rank()} waited for all ranks at {where}: {reason}", remedy)
