"""A rank that makes calls when the controller orders them, each together with the other ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any, Protocol

from paceline.collectives.bounds import ALLREDUCE, BROADCAST, MEASURED, REDUCE, messages_of
from paceline.examples.benchmarks.harness import usage
from paceline.examples.benchmarks.harness.connections import connect_horovod, connect_torch
from paceline.examples.benchmarks.harness.place import Place
from paceline.launch.probe.buffers import ROOT, Buffers, Case
from paceline.launch.probe.calls import Calls, HorovodCaller


@dataclass(frozen=True)
class Order:
    """Order of `calls` measured calls; with `warm_up`, one more before them, at any moment."""

    case: Case
    calls: int
    warm_up: bool = False


@dataclass(frozen=True)
class Called:
    """Values per call: begin and end by the machine's monotonic clock, processor time of all threads in between.

    `message_s` is the time of the messages once the ranks had agreed on them, from the first one's beginning to the
    last one's end; empty where a call consists of its message alone.
    """

    begin_s: tuple[float, ...]
    end_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    message_s: tuple[float, ...]


class Caller(Protocol):
    """A rank that can prepare calls of `operations`."""

    @property
    def operations(self) -> tuple[str, ...]: ...  # noqa: D102

    def prepare(self, case: Case) -> Calls: ...  # noqa: D102


class CallWorker:
    """A rank of a system. Its first message holds the operations that it supports."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.hello = caller.operations

    def answer(self, order: Order, control: Connection) -> Called:
        """Make calls. Raises ValueError for wrong results."""
        calls = self._caller.prepare(order.case)
        if order.warm_up:
            calls.fill()
            calls.call()
            calls.check()
        if calls.record is not None:
            calls.record(order.calls)
        begins, ends, cpu = [], [], []
        for _ in range(order.calls):
            calls.fill()
            control.send(None)
            at_s: float = control.recv()
            time.sleep(max(0.0, at_s - time.monotonic()))
            used = usage.process()
            begins.append(time.monotonic())
            calls.call()
            ends.append(time.monotonic())
            cpu.append(usage.process().since(used).cpu_s)
        calls.check()
        message_s = () if calls.recorded is None else tuple(calls.recorded())
        return Called(tuple(begins), tuple(ends), tuple(cpu), message_s)


def horovod_worker(place: Place, options: dict[str, Any]) -> CallWorker:
    """Horovod's operations: over Gloo, or on Paceline's collectives if the environment selects one."""
    connect_horovod(place)
    return CallWorker(HorovodCaller(place.rank, place.size))


def torch_worker(place: Place, options: dict[str, Any]) -> CallWorker:
    """torch.distributed over Gloo."""
    connect_torch(place)
    return CallWorker(TorchCaller(place))


class TorchCaller:
    """A rank of the process group. Ranks need no coordination: a call consists of its message."""

    operations = MEASURED

    def __init__(self, place: Place) -> None:
        self._place = place

    def prepare(self, case: Case) -> Calls:
        """Return the calls of a case, on tensors that share the memory of Buffers."""
        import torch
        import torch.distributed as dist

        buffers = Buffers(case, self._place.rank, self._place.size)
        tensors = [torch.from_numpy(array) for array in buffers.arrays]
        start: dict[str, Callable[[Any], Any]] = {
            ALLREDUCE: lambda tensor: dist.all_reduce(tensor, async_op=True),
            BROADCAST: lambda tensor: dist.broadcast(tensor, ROOT, async_op=True),
            REDUCE: lambda tensor: dist.reduce(tensor, ROOT, async_op=True),
        }
        begins = [start[one] for one in messages_of(case.operation)]

        def call() -> None:
            for work in [begin(tensor) for begin, tensor in zip(cycle(begins), tensors, strict=False)]:
                work.wait()

        return Calls(buffers.fill, call, buffers.check)
