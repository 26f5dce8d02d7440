"""Mean wait of an allreduce if rank r is r skews late: closed forms, all times in multiples of the skew.

A round that begins when the k-th of P ranks arrives makes rank r < k wait for k - 1 - r skews, and later ranks not at
all: k (k - 1) / (2 P) on average over all ranks. The time of the allreduce itself is added by `with_transfer`. Li et
al. (eager-SGD, PPoPP 2020, section 7.1) measure this situation; the forms are derived here:

    sync      k = P                       (P - 1) / 2
    random    k is drawn from 1 .. P      (P^2 - 1) / (6 P), the mean of k (k - 1) / (2 P)
    majority  k = q = (P + 1) // 2        q (q - 1) / (2 P), for even P: (P - 2) / 8
    solo      k = 1                       0
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.partial.settings import MAJORITY, RANDOM, SOLO, Partial

SYNC = "sync"
# In the expected order, slowest first. All but SYNC are quorums of a partial allreduce.
SYSTEMS = (SYNC, RANDOM, MAJORITY, SOLO)


def wait(fresh: float, ranks: int) -> float:
    """Mean wait over `ranks` ranks in a round with `fresh` contributions in time."""
    return fresh * (fresh - 1) / (2 * ranks)


def fresh_counts(system: str, ranks: int) -> Sequence[int]:
    """Possible numbers of contributions in time in a round, with equal probability."""
    count = ranks if system == SYNC else Partial(system).count(ranks)
    return [count] if count else range(1, ranks + 1)


def expected_wait(system: str, ranks: int) -> float:
    """Closed form: mean wait of `system` over ranks and rounds."""
    counts = fresh_counts(system, ranks)
    return sum(wait(count, ranks) for count in counts) / len(counts)


def expected_fresh(system: str, ranks: int) -> float:
    """Mean number of contributions in time (the paper's active processes, NAP)."""
    counts = fresh_counts(system, ranks)
    return sum(counts) / len(counts)


def with_transfer(fresh: Sequence[float], ranks: int, transfer: float) -> float:
    """Increase of the mean latency by skew, for rounds with these numbers of contributions in time.

    Ranks in time wait for each other and for the allreduce, which takes `transfer` without skew. A late rank takes the
    existing result and saves the transfer.
    """
    waits = [wait(count, ranks) - (1 - count / ranks) * transfer for count in fresh]
    return sum(waits) / len(waits)
