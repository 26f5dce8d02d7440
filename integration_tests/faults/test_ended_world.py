"""Patch ended-world: init() of a rank ends when the world has ended already, because another rank has shut down.

Found by the matrix: the rank had no ranks in its global process set, took itself for no member, and trained alone.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pytest

from integration_tests.support.ranks import ranks


def _after_the_end(library: Any, size: int) -> None:
    """Wait until the table of process sets has no ranks."""
    end_s = time.monotonic() + 20
    while library.horovod_process_set_ranks(ctypes.c_int(0), (ctypes.c_int * size)()) >= 0:
        assert time.monotonic() < end_s, "the world has not ended"
        time.sleep(0.001)


@pytest.mark.patch("ended-world")
@pytest.mark.parametrize("ours", [True, False], ids=["paceline", "horovod"])
@ranks(3, fresh=True)
def test_a_rank_does_not_train_alone(rank: int, size: int, ours: bool) -> None:
    import horovod.torch
    import torch
    from horovod.common import basics

    import paceline.torch

    hvd: Any = paceline.torch if ours else horovod.torch
    if rank == 0:
        hvd.init()
        hvd.shutdown()
        return
    known = basics._init_process_sets

    def late(process_sets: Any) -> None:
        _after_the_end(horovod.torch.mpi_ops._basics.MPI_LIB_CTYPES, size)
        known(process_sets)

    basics._init_process_sets = late
    weight = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(hvd.HorovodInternalError, match="has been shut down"):
        hvd.init()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
        weight.sum().backward()
        optimizer.step()
    assert not weight.any()
