"""Errors with process sets are exceptions in Python on every rank; the process survives and can start again.

Patch process-set-failures. In Horovod 0.28.1 the background thread, for whatever reason it ended, removes process sets
in agreement with the other ranks. An error during their setup occurred there again, where nothing catches it (exit
134).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

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


_STALL = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}


@ranks(3, fresh=True, env=_STALL, timeout_s=40)
def test_a_call_that_some_ranks_never_make_is_an_error_on_all_ranks(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init(process_sets="dynamic")
    one, other = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: hvd.add_process_set([0, 2]),
            r"hvd.add_process_set\(\) was called by ranks \[0, 1\], not by ranks \[2\]",
        ),
        (
            lambda: hvd.remove_process_set(one if rank == 0 else other),
            r"was called by ranks \[0\] for process set 1, by ranks \[1\] for process set 2, not by ranks \[2\]",
        ),
    ]
    for call, text in cases:
        with pytest.raises(hvd.HorovodInternalError, match=rf"for \d+ s now\. .*{text}"):
            if rank == 2:
                hvd.allreduce(torch.ones(2), name="alone")
            else:
                call()
        hvd.shutdown()
        hvd.init(process_sets="dynamic")
        one, other = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])
        _works(rank, size)


@ranks(3, fresh=True, env={**_STALL, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0"}, timeout_s=40)
def test_a_late_call_is_waited_for(rank: int, size: int) -> None:
    import horovod.torch as hvd

    hvd.init(process_sets="dynamic")
    time.sleep(4 if rank == 1 else 0)
    one = hvd.add_process_set([0, 2])
    time.sleep(4 if rank == 0 else 0)
    assert hvd.remove_process_set(one)
    _works(rank, size)
