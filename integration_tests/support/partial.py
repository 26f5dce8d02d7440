"""Requirements on partial allreduce in every framework; a framework's tests provide the calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# (name, contribution) of several calls -> (result, number of fresh contributions) of each.
Exchange = Callable[[Sequence[tuple[str, np.ndarray[Any, Any]]]], Sequence[tuple[Any, Any]]]

SIZES = (1, 5, 33)

CHOICES: dict[str, dict[str, Any]] = {
    "solo": {"quorum": "solo"},
    "majority": {"quorum": "majority"},
    "random": {"quorum": "random", "seed": 5},
    "two": {"quorum": 2},
    "lag": {"quorum": "solo", "max_lag": 2},
}

WRONG_QUORA: tuple[Any, ...] = (0, 1.5, "most", -1)


def contribution(rank: int, step: int, size: int) -> np.ndarray[Any, Any]:
    """Contribution of a rank: whole numbers, so that sums are exact in any order."""
    return np.arange(size, dtype=np.float64) + 1000.0 * rank + step


def conserve(
    rank: int, size: int, label: str, steps: int, pauses: float, hvd: Any, exchange: Exchange, flush: Exchange
) -> list[list[float]]:
    """Sums of all results for each tensor, after `steps` steps with random delays and a flush.

    Asserts that they equal the contributions of all ranks. `exchange` and `flush` use op=hvd.Sum. Each step has another
    order of calls.
    """
    chance = random.Random(rank + 17 * steps)
    names = {f"conserve.{label}.{n}": n for n in SIZES}
    totals = {name: np.zeros(n) for name, n in names.items()}
    given = {name: np.zeros(n) for name, n in names.items()}
    for step in range(steps):
        if chance.random() < pauses:
            time.sleep(chance.random() * 0.004)
        calls = [(name, contribution(rank, step, n)) for name, n in chance.sample(list(names.items()), len(names))]
        for (name, mine), (result, fresh) in zip(calls, exchange(calls)):
            assert 0 <= int(fresh) <= size * (steps + 1)
            given[name] += mine
            totals[name] += np.asarray(result)
    for name, (result, _) in zip(names, flush([(name, totals[name]) for name in names])):
        totals[name] += np.asarray(result)
    everyone = hvd.allgather_object(given, name=f"conserve.{label}.all")
    rounds = hvd.allgather_object(hvd.exchange_stats().rounds, name=f"conserve.{label}.rounds")
    assert set(rounds) == {rounds[0]}, rounds  # each round was performed once, whichever rank began it
    for name, total in totals.items():
        assert total.tolist() == sum(one[name] for one in everyone).tolist()
    return [total.tolist() for total in totals.values()]


def come_late(rank: int, size: int, hvd: Any, call: Callable[[float], tuple[Any, Any]]) -> None:
    """Check papers.md 4.7, items 4 to 6: late contributions arrive one round later, divided by the number of ranks.

    `call(value)` is a solo partial allreduce, with op=hvd.Average, of a vector of `value`.
    """

    def answer(value: float) -> tuple[int, int]:
        result, fresh = call(value)
        return round(float(result[0]) * size), int(fresh)

    def meet() -> None:
        hvd.allgather_object(None, name="late.meet")  # horovod.tensorflow has no barrier

    last = size - 1
    assert answer(2.0**rank) == (2**size - 1, size)
    meet()
    if rank == 0:  # the last rank arrives when this round is over
        assert answer(1.0) == (1, 1)
    meet()
    if rank == last:
        assert answer(1000.0) == (1, 1)
    meet()
    if rank == 0:
        # The late contribution is in the next round.
        assert answer(7.0) == (1007, 1)
    meet()
    if rank == last:
        assert answer(0.0) == (1007, 1)
