"""Horovod's operations: over Gloo as they are, or on Paceline's collectives, as the environment asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from paceline.arguments import choice_asked
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, REDUCE
from paceline.launch.benchmarks.assignment import Place
from paceline.launch.benchmarks.collectives.buffers import ROOT, Buffers
from paceline.launch.benchmarks.collectives.cases import MODEL, Case
from paceline.launch.benchmarks.collectives.systems import Caller, Calls
from paceline.launch.benchmarks.system_horovod import connect
from paceline.registry.collectives import HOROVODS


def setup(place: Place) -> Caller:
    """Connect through a rendezvous server in rank 0."""
    connect(place)
    return HorovodCaller(place.rank, place.size)


class HorovodCaller:
    """A rank of Horovod's world."""

    def __init__(self, rank: int, size: int) -> None:
        import torch

        import paceline.torch as hvd
        from paceline.native.library import loaded

        self._hvd: Any = hvd
        self._rank, self._size = rank, size
        self._library = loaded("torch")
        self._one = torch.ones(1)

    @property
    def operations(self) -> tuple[str, ...]:
        """Reductions only where Paceline's collectives do them, which is without a codec: Horovod has none."""
        environ = os.environ
        reduces = environ.get("PACELINE_COLLECTIVE", HOROVODS) != HOROVODS and not environ.get("PACELINE_CODEC")
        return (BROADCAST, *((REDUCE,) if reduces else ()), ALLREDUCE, MODEL)

    def leave(self) -> None:
        """Without a word: it might wait for peers."""

    def prepare(self, case: Case) -> Calls:
        """Tensors on the memory of Buffers."""
        import torch

        buffers = Buffers(case, self._rank, self._size)
        tensors = [torch.from_numpy(array) for array in buffers.arrays]
        call = self._call(case, tensors)
        return Calls(buffers.fill, call, buffers.check, self._record, lambda: self._recorded(len(tensors)))

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
        mark = choice_asked().mark if case.operation == ALLREDUCE else ""  # a script's own travel without a codec
        names = [f"{mark}{case.name}.{index}" for index in range(len(tensors))]

        def call() -> None:
            for handle in [begin(tensor, name) for tensor, name in zip(tensors, names, strict=True)]:
                hvd.synchronize(handle)

        return call

    def _record(self, calls: int) -> None:
        # The recorder keeps messages by steps, and only an allreduce begins one: this, and in its turn every call.
        self._library.horovod_paceline_record_start(calls + 1)
        self._hvd.allreduce(self._one, name="collectives.begin")

    def _recorded(self, messages_per_call: int) -> list[float]:
        from paceline.record.snapshot import take

        # A message is written down after its results are handed over: wait for the thread that does both.
        self._hvd.barrier()
        steps = take(self._library).steps
        self._library.horovod_paceline_record_stop()
        messages = [one for step in steps for one in step.collectives if one.kind != "barrier"]
        messages = sorted(messages, key=lambda one: one.start_s)[1:]  # without that of `_record`
        calls = [messages[at : at + messages_per_call] for at in range(0, len(messages), messages_per_call)]
        return [max(one.end_s for one in call) - min(one.start_s for one in call) for call in calls]
