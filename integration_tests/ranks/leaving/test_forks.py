"""Processes that a rank forks, such as those that prepare data, end by themselves: the world is their parent's."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
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


def _in_a_child(body: Callable[[], object]) -> str:
    """Run `body` in a forked process; return what it returned, or the error that it raised, as text."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        text = ""
        try:
            text = str(body())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, text.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.wait()
    return text


@pytest.mark.patch("forked-operation")
@ranks(2, hvd="paceline.torch", env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, timeout_s=40)
def test_operations_of_a_forked_process_are_errors(rank: int, size: int, hvd: Any) -> None:
    begun = hvd.allreduce_async(torch.ones(2), name="begun") if rank == 0 else None
    operations: dict[str, Callable[[], Any]] = {
        "allreduce": lambda: hvd.allreduce(torch.ones(2)),
        "wait": lambda: hvd.synchronize(begun) if rank == 0 else hvd.barrier(),
        "object": lambda: hvd.broadcast_object([1], root_rank=0),
        "join": hvd.join,
        "barrier": hvd.barrier,
        "sets": lambda: hvd.add_process_set([0]),
        "partial": lambda: hvd.partial_allreduce(torch.ones(2), "p", quorum="solo"),
    }
    for name, operation in operations.items():
        error = _in_a_child(operation)
        assert f"was forked from rank {rank}, process {os.getpid()}, after hvd.init()" in error, (name, error)
    if begun is None:
        begun = hvd.allreduce_async(torch.ones(2), name="begun")
    assert torch.equal(hvd.synchronize(begun), torch.ones(2))
    assert _in_a_child(lambda: (hvd.rank(), hvd.size())) == str((rank, size))


@pytest.mark.parametrize("fusion", ["none", "optimal"])
@ranks(2, 3, hvd="paceline.torch", timeout_s=40)
def test_a_forked_process_reads_new_weights(rank: int, size: int, hvd: Any, fusion: str) -> None:
    """Weights of the split exchange are in flight after step()."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.Linear(60, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), exchange="split", fusion=fusion
    )
    for step in range(6):
        optimizer.zero_grad()
        model(torch.full((2, 40), float(rank + step))).square().mean().backward()
        optimizer.step()
        found = _in_a_child(lambda: model(torch.ones(1, 40)).tolist())
        assert found == str(model(torch.ones(1, 40)).tolist())
    optimizer.drain()
    hvd.check_replicas(model)
