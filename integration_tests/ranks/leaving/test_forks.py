"""Processes that a rank forks, such as those that prepare data, end by themselves: the world is their parent's."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import pytest
import torch

from integration_tests.support.ranks import ranks


@ranks(2, hvd="paceline.torch")
def test_a_forked_process_exits_and_its_rank_goes_on(rank: int, size: int, hvd: Any) -> None:
    for _ in range(2):
        child = os.fork()
        if child == 0:
            # What a child inherits and runs at its end; the worker that these ranks are must not go on in it.
            try:
                hvd.shutdown()
            finally:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert torch.equal(hvd.allreduce(torch.ones(2), name="after", op=hvd.Sum), torch.full((2,), float(size)))


def _python_threads() -> list[int]:
    """The addresses of all that Python's list of threads holds."""
    api = ctypes.pythonapi
    for name, takes in (("PyInterpreterState_Get", []), ("PyInterpreterState_ThreadHead", [ctypes.c_void_p])):
        getattr(api, name).restype = ctypes.c_void_p
        getattr(api, name).argtypes = takes
    api.PyThreadState_Next.restype = ctypes.c_void_p
    api.PyThreadState_Next.argtypes = [ctypes.c_void_p]
    found, each = [], api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Get())
    while each:
        found.append(each)
        each = api.PyThreadState_Next(each)
    return found


@pytest.mark.patch("forked-child")
@ranks(2, hvd="horovod.torch")
def test_operations_that_end_do_not_change_pythons_list_of_threads(rank: int, size: int, hvd: Any) -> None:
    hvd.allreduce(torch.ones(2), name="first")
    # A child forked while this list is locked waits forever: Python takes the lock before it renews it.
    known = _python_threads()
    assert len(known) > threading.active_count()
    for _ in range(10):
        hvd.allreduce(torch.ones(2), name="later")
    assert _python_threads() == known
