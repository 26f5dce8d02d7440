"""Partial calls and flushes that fail leave nothing, or a rank that reports an error."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.merging import ByHand
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError
from paceline.native.exchanges import register
from paceline.native.library import loaded
from paceline.partial.settings import Partial


@ranks(3, more=(2,))
def test_refused_first_call_leaves_the_name_to_the_operation_that_has_it(rank: int, size: int) -> None:
    mine = torch.full((5,), 10.0**rank)
    for turn in range(3):  # from the second one on with a response from the cache
        if rank == 0:
            handle = hvd.allreduce_async(mine, name="refused", op=hvd.Sum)
            with pytest.raises(Exception, match=r"(?s)refused.*in use by an allreduce that is not partial"):
                hvd.partial_allreduce(mine, "refused")
            full = hvd.synchronize(handle)
        else:
            time.sleep(0.2)
            full = hvd.allreduce(mine, name="refused", op=hvd.Sum)
        assert torch.equal(full, torch.full((5,), sum(10.0**n for n in range(size)))), turn
    # A refused first call of the wrong kind is not remembered either.
    register(loaded("torch"), 0, "allreduce.refused.kind", *Partial(quorum=1).registration(size))
    with pytest.raises(Exception, match="expected op Sum or Average"):
        hvd.allreduce(mine, name="refused.kind", op=hvd.Min)
    assert torch.equal(hvd.allreduce(mine, name="refused.kind", op=hvd.Max), torch.full((5,), 10.0 ** (size - 1)))


def _flush_outlasts_a_round(rank: int, size: int, notified: Path) -> None:
    one = torch.ones(3)
    for _ in range(2):
        hvd.partial_allreduce(one, "outlasts", quorum="solo")
    hvd.barrier()
    flush = hvd.flush_partial(one, "outlasts", quorum="solo") if rank == 0 else None
    hvd.barrier()
    if rank == 1:  # a round for ranks that still make calls
        hvd.partial_allreduce(one, "outlasts", quorum="solo")
    if flush is None:
        ByHand.wait(notified.exists)
        return
    with pytest.raises(Exception, match=r"(?i)shut down|stall"):
        flush.wait()
    notified.touch()


def test_flush_that_waits_after_a_round_is_seen_by_the_stall_inspector(tmp_path: Path) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    run_ranks(_flush_outlasts_a_round, 3, tmp_path / "notified", env=env, fresh=True)


@ranks(2, fresh=True)
def test_autotuning_is_refused(rank: int, size: int) -> None:
    hvd.shutdown()
    os.environ["HOROVOD_AUTOTUNE"] = "1"
    hvd.init()
    weights = [torch.nn.Parameter(torch.ones(1))]
    with pytest.raises(UserError, match=r"HOROVOD_AUTOTUNE=1 and a partial exchange"):
        hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), [("tuned", weights[0])], exchange="majority")
    with pytest.raises(UserError, match=r"horovodrun without --autotune"):
        hvd.partial_allreduce(torch.ones(1), "tuned")
    hvd.shutdown()
    os.environ["PACELINE_EXCHANGE"] = "solo"
    with pytest.raises(UserError, match=r"HOROVOD_AUTOTUNE=1 and a partial exchange"):
        hvd.init()
