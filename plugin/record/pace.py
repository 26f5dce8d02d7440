"""Seconds per update of a recorded run, under any exchange."""

from __future__ import annotations

import itertools
from statistics import median

from paceline.record.timed import midmean
from paceline.record.trace import RankTrace, Trace

FEWEST = 4  # submissions of the largest tensor


def update_s(trace: Trace, updates_between: int = 1) -> float | None:
    """Return the seconds from one update to the next: the median of the ranks' midmeans; None if it is unknown.

    The largest tensor that is all-reduced is submitted once in `updates_between` updates of a rank, whatever else the
    script reduces.
    """
    found = [one for one in (_rank_s(rank) for rank in trace.ranks) if one is not None]
    return median(found) / updates_between if found else None


def _rank_s(rank: RankTrace) -> float | None:
    times: dict[int, list[float]] = {}
    for step in rank.steps:
        for arrival in step.arrivals:
            times.setdefault(arrival.tensor, []).append(arrival.time_s)
    often = [tensor for tensor, at in times.items() if len(at) >= FEWEST]
    if not often:
        return None
    largest = max(often, key=lambda tensor: (rank.tensors[tensor].size_bytes, len(times[tensor])))
    at = sorted(times[largest])
    return midmean(after - before for before, after in itertools.pairwise(at))
