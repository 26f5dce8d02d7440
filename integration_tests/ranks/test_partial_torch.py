"""Partial allreduce of PyTorch tensors: nothing is lost, nothing is counted twice, and nobody waits for the late."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from integration_tests.support.ranks import ranks, run_ranks

SIZES = (1, 5, 33)


def _contribution(rank: int, step: int, size: int) -> Any:
    """Whole numbers, so that sums are exact in any order."""
    import torch

    return torch.arange(size, dtype=torch.float64) + 1000.0 * rank + step


def _conserve(
    rank: int, size: int, label: str, steps: int, choices: dict[str, Any], pauses: float
) -> list[list[float]]:
    """All results added up, for each tensor, after `steps` calls with random delays and a flush."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    chance = random.Random(rank + 17 * steps)
    totals = [torch.zeros(n, dtype=torch.float64) for n in SIZES]
    given = [torch.zeros(n, dtype=torch.float64) for n in SIZES]
    names = [f"conserve.{label}.{n}" for n in SIZES]
    for step in range(steps):
        if chance.random() < pauses:
            time.sleep(chance.random() * 0.004)
        pending = []
        for n in chance.sample(range(len(SIZES)), len(SIZES)):
            mine = _contribution(rank, step, SIZES[n])
            given[n] += mine
            pending.append((n, hvd.partial_allreduce_async(mine, names[n], op=hvd.Sum, **choices)))
        for n, answer in pending:
            result, fresh = answer.wait()
            assert 0 <= fresh <= size * (steps + 1)
            totals[n] += result
    flushes = [hvd.flush_partial(one, name, op=hvd.Sum, **choices) for one, name in zip(totals, names)]
    for total, flush in zip(totals, flushes):
        total += flush.wait()[0]
    sums = [hvd.allreduce(one, op=hvd.Sum, name=f"conserve.all.{label}.{n}") for n, one in enumerate(given)]
    for total, whole in zip(totals, sums):
        assert total.tolist() == whole.tolist()
    return [total.tolist() for total in totals]


CHOICES: dict[str, dict[str, Any]] = {
    "solo": {"quorum": "solo"},
    "majority": {"quorum": "majority"},
    "random": {"quorum": "random", "seed": 5},
    "two": {"quorum": 2},
    "lag": {"quorum": "solo", "max_lag": 2},
}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("label", CHOICES)
def test_everything_contributed_arrives_once(size: int, label: str) -> None:
    results = run_ranks(_conserve, size, label, 120, CHOICES[label], 0.5, timeout_s=60)
    assert all(one == results[0] for one in results)


@pytest.mark.soak
@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
def test_everything_contributed_arrives_once_in_two_thousand_rounds(size: int) -> None:
    for label in CHOICES:
        run_ranks(_conserve, size, f"long.{label}", 2000, CHOICES[label], 0.3, timeout_s=600)


@ranks(2, 3)
def test_all_ranks_as_quorum_is_an_allreduce(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    hvd.init()
    for step in range(20):
        mine = torch.randn(17, generator=torch.Generator().manual_seed(31 * step + rank))
        whole = hvd.allreduce(mine, name=f"whole.{step}")
        part, fresh = hvd.partial_allreduce(mine, "whole.partial", quorum=size)
        torch.testing.assert_close(part, whole, rtol=1e-6, atol=1e-7)
        assert fresh == size


@ranks(2, 3)
def test_late_rank_gets_what_it_missed_and_brings_two_contributions(rank: int, size: int) -> None:
    """papers.md 4.7, items 4 to 6: late by one round, divided by the number of all ranks."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    one = torch.ones(3)

    def call(value: float) -> tuple[int, int]:
        result, fresh = hvd.partial_allreduce(one * value, "late", quorum="solo")
        return round(result[0].item() * size), fresh

    last = size - 1
    assert call(10.0**rank) == (sum(10**other for other in range(size)), size)
    hvd.barrier()
    if rank == 0:  # the last comes when this round is over
        assert call(1.0) == (1, 1)
    hvd.barrier()
    if rank == last:
        missed, fresh = call(1000.0)
        assert (missed, fresh) == (1, 1)
    hvd.barrier()
    if rank == 0:
        # The contribution that came late is in the next round.
        assert call(7.0) == (1007, 1)
    hvd.barrier()
    if rank == last:
        assert call(0.0) == (1007, 1)


@ranks(2, timeout_s=60)
def test_errors_name_both_sides(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd
    from paceline.errors import UserError

    hvd.init()
    one = torch.ones(4)
    for wrong in (0, 1.5, "most", -1):
        with pytest.raises(UserError, match="quorum"):
            hvd.partial_allreduce(one, "wrong.quorum", quorum=wrong)
    with pytest.raises(UserError, match="from 1 to 2"):
        hvd.partial_allreduce(one, "wrong.quorum", quorum=3)
    with pytest.raises(ValueError, match=r"Average or hvd.Sum"):
        hvd.partial_allreduce(one, "wrong.op", op=hvd.Max)
    hvd.partial_allreduce(one, "wrong.shape", quorum="solo")
    with pytest.raises(Exception, match=r"(?s)wrong.shape: expected float32 \[5\].*found float32 \[8\]"):
        hvd.partial_allreduce(torch.ones(7), "wrong.shape", quorum="solo")
    with pytest.raises(Exception, match=r"found others"):
        hvd.partial_allreduce(one, "wrong.shape", quorum=2)
    with pytest.raises(Exception, match=r"were partial"):
        hvd.allreduce_(one, name="wrong.shape")
