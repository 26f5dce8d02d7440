"""The rank harness itself: it runs bodies on every rank and turns a hang or a failure into a readable report."""

from __future__ import annotations

import time

import pytest

from integration_tests.support.ranks import RankFailed, ranks, run_ranks


@ranks(2, 3)
def test_body_runs_on_every_rank(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    assert (hvd.rank(), hvd.size()) == (rank, size)
    total = hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum, name="harness")
    assert total.item() == size * (size - 1) / 2


def _sleep_on_rank_1(rank: int, size: int) -> None:
    if rank == 1:
        time.sleep(60)


def test_hang_is_a_failure_that_names_the_rank() -> None:
    with pytest.raises(RankFailed, match=r"rank 1: hung(.|\n)*time\.sleep|_sleep_on_rank_1"):
        run_ranks(_sleep_on_rank_1, 2, timeout_s=2, fresh=True)


def _fail_on_rank_0(rank: int, size: int) -> None:
    assert rank != 0, "rank zero says no"


def test_failure_shows_the_ranks_own_words() -> None:
    with pytest.raises(RankFailed, match="rank zero says no"):
        run_ranks(_fail_on_rank_0, 2, timeout_s=30, fresh=True)
