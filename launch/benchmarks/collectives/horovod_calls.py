"""Horovod's operations: over Gloo as they are, or on Paceline's collectives, as the environment asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from paceline.collectives.bounds import ALLREDUCE, BROADCAST, REDUCE
from paceline.launch.benchmarks.assignment import Place
from paceline.launch.benchmarks.collectives.buffers import ROOT, Buffers
from paceline.launch.benchmarks.collectives.cases import MODEL, Case
from paceline.launch.benchmarks.collectives.systems import Caller, Calls
from paceline.launch.benchmarks.system_horovod import connect
from paceline.registry.collectives import HOROVODS

_KINDS = {ALLREDUCE: "allreduce", BROADCAST: "broadcast", REDUCE: "reduce", MODEL: "broadcast"}


def setup(place: Place) -> Caller:
    """Connect through a rendezvous server in rank 0."""
    connect(place)
    return HorovodCaller(place)


class HorovodCaller:
    """A rank of Horovod's world."""

    def __init__(self, place: Place) -> None:
        import paceline.torch as hvd
        from paceline.native.library import loaded

        self._hvd: Any = hvd
        self._place = place
        self._library = loaded("torch")

    @property
    def operations(self) -> tuple[str, ...]:
        """Reductions only where Paceline's collectives do them: Horovod has none."""
        reduces = os.environ["PACELINE_COLLECTIVE"] != HOROVODS and hasattr(self._hvd, "reduce_async_")
        return (BROADCAST, *((REDUCE,) if reduces else ()), ALLREDUCE, MODEL)

    def prepare(self, case: Case) -> Calls:
        """Tensors on the memory of Buffers."""
        import torch

        buffers = Buffers(case, self._place.rank, self._place.size)
        tensors = [torch.from_numpy(array) for array in buffers.arrays]
        return Calls(buffers.fill, self._call(case, tensors), buffers.check, self._record, lambda: self._recorded(case))

    def _call(self, case: Case, tensors: list[Any]) -> Callable[[], None]:
        hvd = self._hvd
        if case.operation == MODEL:
            named = {f"{case.name}.{index}": tensor for index, tensor in enumerate(tensors)}
            return lambda: hvd.broadcast_parameters(named, root_rank=ROOT)
        start: dict[str, Callable[[Any, str], int]] = {
            ALLREDUCE: lambda tensor, name: hvd.allreduce_async_(tensor, op=hvd.Sum, name=name),
            BROADCAST: lambda tensor, name: hvd.broadcast_async_(tensor, ROOT, name=name),
            REDUCE: lambda tensor, name: hvd.reduce_async_(tensor, ROOT, op=hvd.Sum, name=name),
        }
        begin = start[case.operation]

        def call() -> None:
            for handle in [begin(tensor, f"{case.name}.{index}") for index, tensor in enumerate(tensors)]:
                hvd.synchronize(handle)

        return call

    def _record(self, calls: int) -> None:
        # A call is a step to the recorder: its names come again with the next. One more: that of the barrier.
        self._library.horovod_paceline_record_start(calls + 1)

    def _recorded(self, case: Case) -> list[float]:
        from paceline.record.snapshot import take

        # A message is written down after its results are handed over: wait for the thread that does both.
        self._hvd.barrier()
        steps = take(self._library).steps
        self._library.horovod_paceline_record_stop()
        kind = _KINDS[case.operation]
        spans = []
        for step in steps:
            messages = [one for one in step.collectives if one.kind == kind]
            if messages:
                spans.append(max(one.end_s for one in messages) - min(one.start_s for one in messages))
        return spans
