"""The rank harness itself: it runs bodies on every rank and turns a hang or a failure into a readable report."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from integration_tests.support import ranks as support
from integration_tests.support.ranks import RankFailed, ranks, run_ranks


@ranks(2, 3, hvd="horovod.torch")
def test_body_runs_on_every_rank(rank: int, size: int, hvd: Any) -> None:
    import torch

    assert (hvd.rank(), hvd.size()) == (rank, size)
    total = hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum, name="harness")
    assert total.item() == size * (size - 1) / 2


def _sleep_on_rank_1(rank: int, size: int) -> None:
    if rank == 1:
        time.sleep(60)


def test_hang_is_a_failure_that_names_the_rank() -> None:
    with pytest.raises(RankFailed, match=r"rank 1: hung(.|\n)*time\.sleep|_sleep_on_rank_1"):
        run_ranks(_sleep_on_rank_1, 2, timeout_s=5, fresh=True)


def _fail_on_rank_0(rank: int, size: int) -> None:
    assert rank != 0, "rank zero says no"


def test_failure_shows_the_ranks_own_words() -> None:
    with pytest.raises(RankFailed, match="rank zero says no"):
        run_ranks(_fail_on_rank_0, 2, timeout_s=30, fresh=True)


def _what_a_rank_sees(rank: int, size: int) -> dict[str, Any]:
    import sys

    # torch has been imported already where ranks are forked.
    seen = {"imported": "torch" in sys.modules, "session": os.getsid(0) == os.getpid()}
    import horovod.torch as hvd

    hvd.init()
    return {
        **seen,
        "rank": hvd.rank(),
        "variables": os.environ["HOROVOD_RANK"],
        "own": os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"],
    }


@pytest.mark.parametrize("forks", [True, False])
def test_ranks_are_the_same_forked_and_started(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "forks", forks)
    seen = run_ranks(_what_a_rank_sees, 2, env={"HOROVOD_STALL_CHECK_TIME_SECONDS": "77"}, fresh=True)
    same = {"imported": forks, "session": True, "own": "77"}
    assert seen == [{**same, "rank": rank, "variables": str(rank)} for rank in range(2)]


def _end_rank_1(rank: int, size: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("forks", [True, False])
def test_a_rank_that_dies_is_reported_with_its_status(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "forks", forks)
    with pytest.raises(RankFailed, match=r"rank 1: died\n-9"):
        run_ranks(_end_rank_1, 2, timeout_s=30, fresh=True)


def _pid(rank: int, size: int) -> int:
    return os.getpid()


def test_ranks_that_were_stopped_for_longer_than_they_may_wait_are_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = run_ranks(_pid, 2)
    assert run_ranks(_pid, 2) == first
    monkeypatch.setattr(support, "MAX_PAUSE_S", 0.0)
    assert not set(run_ranks(_pid, 2)) & set(first)
