"""Partial allreduce of PyTorch tensors: nothing is lost, nothing is counted twice, and no rank waits for late ones."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.partial import CHOICES, WRONG_QUORA, come_late, conserve
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError


def _conserve(rank: int, size: int, label: str, steps: int, choices: dict[str, Any], pauses: float) -> Any:
    def all_of(call: Any) -> Any:
        def run(calls: Any) -> Any:
            pending = [call(torch.from_numpy(mine), name, op=hvd.Sum, **choices) for name, mine in calls]
            return [one.wait() for one in pending]

        return run

    exchange, flush = all_of(hvd.partial_allreduce_async), all_of(hvd.flush_partial)
    return conserve(rank, size, label, steps, pauses, hvd, exchange, flush)


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.more), 3, pytest.param(4, marks=pytest.mark.more)])
@pytest.mark.parametrize("label", CHOICES)
def test_everything_contributed_arrives_once(size: int, label: str) -> None:
    results = run_ranks(_conserve, size, label, 120, CHOICES[label], 0.5)
    assert all(one == results[0] for one in results)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("size", "rounds"),
    [
        pytest.param(5, 200, marks=pytest.mark.soak),
        *(pytest.param(size, 2000, marks=pytest.mark.soak) for size in (2, 3, 4, 7, 8)),
    ],
)
def test_everything_contributed_arrives_once_in_many_rounds(size: int, rounds: int) -> None:
    for label in CHOICES:
        run_ranks(_conserve, size, f"long.{label}", rounds, CHOICES[label], 0.3, timeout_s=600)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "size", [pytest.param(4, marks=pytest.mark.more), *(pytest.param(size, marks=pytest.mark.soak) for size in (7, 8))]
)
def test_what_holds_for_few_ranks_holds_for_many(size: int) -> None:
    for case in (
        test_all_ranks_as_quorum_is_an_allreduce,
        test_late_rank_gets_what_it_missed_and_brings_two_contributions,
        test_rank_that_lags_is_waited_for,
        test_users_own_operations_still_match,
    ):
        run_ranks(case, size)


@ranks(3, more=(2,))
def test_all_ranks_as_quorum_is_an_allreduce(rank: int, size: int) -> None:
    """papers.md 4.7, item 7."""
    for step in range(20):
        # Whole numbers, so that sums are exact in any order.
        mine = torch.randint(-999, 999, (17,), generator=torch.Generator().manual_seed(31 * step + rank)).float()
        whole = hvd.allreduce(mine, name=f"whole.{step}", op=hvd.Sum)
        part, fresh = hvd.partial_allreduce(mine, "whole.partial", op=hvd.Sum, quorum=size)
        assert torch.equal(part, whole)
        assert fresh == size


@ranks(3, more=(2,))
def test_late_rank_gets_what_it_missed_and_brings_two_contributions(rank: int, size: int) -> None:
    come_late(rank, size, hvd, lambda value: hvd.partial_allreduce(torch.ones(3) * value, "late", quorum="solo"))


@ranks(3, more=(2,))
def test_rank_that_lags_is_waited_for(rank: int, size: int) -> None:
    """papers.md 4.7, item 9: no contribution waits for more rounds than max_lag."""
    before = hvd.exchange_stats()
    for _ in range(60):
        if rank == size - 1:
            time.sleep(0.01)
        hvd.partial_allreduce(torch.ones(2), "lags", quorum="solo", max_lag=3)
    hvd.flush_partial(torch.ones(2), "lags", quorum="solo", max_lag=3).wait()
    stats = hvd.exchange_stats().since(before)
    assert stats.most_late <= 3
    assert rank < size - 1 or stats.late > 0


@ranks(3, more=(2,))
def test_users_own_operations_still_match(rank: int, size: int) -> None:
    """Unnamed allreduces, named by counting, between and after 1,000 uneven partial steps."""
    chance = random.Random(rank)
    for step in range(1000):
        if chance.random() < 0.1:
            time.sleep(0.003)
        hvd.partial_allreduce(torch.ones(3), "users", quorum="solo")
        if step % 50 == 0:
            total = hvd.allreduce(torch.full((2,), float(step + rank)), op=hvd.Sum)
            assert total.tolist() == [size * step + size * (size - 1) / 2] * 2
    hvd.flush_partial(torch.ones(3), "users", quorum="solo").wait()
    for _ in range(3):
        assert hvd.allreduce(torch.full((2,), float(rank)), op=hvd.Sum).tolist() == [size * (size - 1) / 2] * 2


@ranks(2)
def test_errors_name_both_sides(rank: int, size: int) -> None:
    one = torch.ones(4)
    for wrong in WRONG_QUORA:
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
