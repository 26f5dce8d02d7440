"""torch.distributed over Gloo, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.collectives.bounds import ALLREDUCE, BROADCAST, OPERATIONS, REDUCE
from paceline.examples.benchmarks.collectives.cases import Case
from paceline.examples.benchmarks.collectives.systems import Caller, Calls
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.system_ddp import connect
from paceline.launch.probe.buffers import ROOT, Buffers


def setup(place: Place) -> Caller:
    """Connect through a file."""
    connect(place)
    return DdpCaller(place)


class DdpCaller:
    """A rank of the process group. There is nothing but the collective: ranks need not agree on what comes next."""

    operations = OPERATIONS

    def __init__(self, place: Place) -> None:
        self._place = place

    def leave(self) -> None:
        """Without a word: it might wait for peers."""

    def prepare(self, case: Case) -> Calls:
        """Tensors on the memory of Buffers."""
        import torch
        import torch.distributed as dist

        buffers = Buffers(case, self._place.rank, self._place.size)
        tensors = [torch.from_numpy(array) for array in buffers.arrays]
        start: dict[str, Callable[[Any], Any]] = {
            ALLREDUCE: lambda tensor: dist.all_reduce(tensor, async_op=True),
            BROADCAST: lambda tensor: dist.broadcast(tensor, ROOT, async_op=True),
            REDUCE: lambda tensor: dist.reduce(tensor, ROOT, async_op=True),
        }
        begin = start[case.operation]

        def call() -> None:
            for work in [begin(tensor) for tensor in tensors]:
                work.wait()

        return Calls(buffers.fill, call, buffers.check)
