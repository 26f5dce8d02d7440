"""How long an allreduce waits when rank r is r skews late: closed forms, all times in multiples of the skew.

A round that begins when the k-th of P ranks has come keeps rank r, for r < k, waiting for k - 1 - r skews and the later
ones not at all: k (k - 1) / (2 P) on average over all ranks. What the allreduce itself takes comes on top
(`with_transfer`). Li et al. (eager-SGD, PPoPP 2020, section 7.1) measure this situation; the forms are derived here:

    sync      k = P                       (P - 1) / 2
    random    k is drawn from 1 .. P      (P^2 - 1) / (6 P), the mean of k (k - 1) / (2 P)
    majority  k = q = (P + 1) // 2        q (q - 1) / (2 P), for even P: (P - 2) / 8
    solo      k = 1                       0
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.partial.settings import MAJORITY, RANDOM, SOLO, Partial

SYNC = "sync"
# In the order in which they are expected to become faster. What is not SYNC is a quorum of a partial allreduce.
SYSTEMS = (SYNC, RANDOM, MAJORITY, SOLO)


def wait(fresh: float, ranks: int) -> float:
    """The mean wait over `ranks` ranks of a round with `fresh` contributions that came in time."""
    return fresh * (fresh - 1) / (2 * ranks)


def fresh_counts(system: str, ranks: int) -> Sequence[int]:
    """How many contributions come in time in a round; all of these with equal probability."""
    count = ranks if system == SYNC else Partial(system).count(ranks)
    return [count] if count else range(1, ranks + 1)


def expected_wait(system: str, ranks: int) -> float:
    """The closed form: the mean wait of `system` over ranks and rounds."""
    counts = fresh_counts(system, ranks)
    return sum(wait(count, ranks) for count in counts) / len(counts)


def expected_fresh(system: str, ranks: int) -> float:
    """The mean number of contributions that come in time (the paper's active processes, NAP)."""
    counts = fresh_counts(system, ranks)
    return sum(counts) / len(counts)


def with_transfer(fresh: Sequence[float], ranks: int, transfer: float) -> float:
    """By how much skew makes the mean latency of rounds with these numbers of contributions in time longer.

    Ranks that come in time wait for each other and for the allreduce, which takes `transfer` without skew; a late rank
    takes the result that is there, and saves the transfer.
    """
    waits = [wait(count, ranks) - (1 - count / ranks) * transfer for count in fresh]
    return sum(waits) / len(waits)
