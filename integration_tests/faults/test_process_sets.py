"""Errors with process sets are exceptions in Python on every rank; the process survives and can start again.

Patch process-set-failures. In Horovod 0.28.1 the background thread, for whatever reason it ended, removes process sets
in agreement with the other ranks. An error during their setup occurred there again, where nothing catches it (exit
134).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from integration_tests.support.ranks import ranks, run_ranks

_SAME = "Register the same process sets in the same order on every rank"


def _works(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    assert hvd.allreduce(torch.tensor(rank), op=hvd.Sum).item() == size * (size - 1) // 2


def _differing_at_init(rank: int, size: int, sets: Sequence[Sequence[Sequence[int]]], text: str) -> None:
    import horovod.torch as hvd

    with pytest.raises(hvd.HorovodInternalError, match=text) as raised:
        hvd.init(process_sets=[hvd.ProcessSet(one) for one in sets[rank]])
    assert isinstance(raised.value, ValueError)  # Horovod's own type for this
    hvd.init()
    _works(rank, size)


@pytest.mark.patch("process-set-failures")
@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ([[[0, 1]], [[0, 1]], [[0, 2]]], rf"rank 0 registers \[0, 1\], rank 2 registers \[0, 2\]. {_SAME}"),
        ([[[0, 1]], [[0]], [[0, 1]]], rf"rank 0 registers \[0, 1\], rank 1 registers \[0\]. {_SAME}"),
        ([[[0, 1]], [[0, 1]], []], rf"rank 0 registers 1 of them, rank 2 registers 0. {_SAME}"),
        ([[[0, 7]]] * 3, "invalid rank: 7"),
    ],
    ids=["members", "sizes", "numbers", "unknown"],
)
def test_differing_sets_at_init(sets: Sequence[Sequence[Sequence[int]]], text: str) -> None:
    run_ranks(_differing_at_init, 3, sets, text, fresh=True)


@pytest.mark.patch("process-set-failures")
@ranks(3, fresh=True)
def test_differing_sets_while_running(rank: int, size: int) -> None:
    import horovod.torch as hvd

    hvd.init(process_sets="dynamic")
    with pytest.raises(ValueError, match=r"expected ranks from 0 to 2, found \[7\]"):
        hvd.add_process_set([0, 7])
    with pytest.raises(ValueError, match="expected every rank once"):
        hvd.add_process_set([1, 1])
    _works(rank, size)  # both were refused before anything happened
    with pytest.raises(hvd.HorovodInternalError, match=_SAME):
        hvd.add_process_set([0, 1] if rank < 2 else [0, 2])
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    assert hvd.add_process_set([1, 2]).process_set_id == 1
    _works(rank, size)
