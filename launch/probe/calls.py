"""Calls of Horovod's operations, over Gloo or on Paceline's collectives, and the times of their messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from paceline.arguments import choice_asked
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, REDUCE, REDUCE_BESIDE_BROADCAST, messages_of
from paceline.launch.probe.buffers import ROOT, Buffers, Case
from paceline.registry.collectives import HOROVODS

MODEL = "broadcast_parameters"  # Horovod's call of that name, on the tensors of a model


@dataclass(frozen=True)
class Calls:
    """A prepared case of a rank.

    `fill` writes the input. `call` returns when the rank has its results. `check` raises ValueError if they are wrong.
    `record` starts recording begin and end of messages. `recorded` returns, for every call since then, the seconds of
    its messages. Both are None if a call is nothing but its message.
    """

    fill: Callable[[], None]
    call: Callable[[], None]
    check: Callable[[], None]
    record: Callable[[int], None] | None = None
    recorded: Callable[[], list[float]] | None = None


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
        """Operations of this rank. Reductions need a collective of Paceline's, without a codec: Horovod has none."""
        environ = os.environ
        reduces = environ.get("PACELINE_COLLECTIVE", HOROVODS) != HOROVODS and not environ.get("PACELINE_CODEC")
        return (BROADCAST, *((REDUCE, REDUCE_BESIDE_BROADCAST) if reduces else ()), ALLREDUCE, MODEL)

    def prepare(self, case: Case) -> Calls:
        """Return the calls of a case, on tensors that share the memory of Buffers."""
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
        begins = [start[one] for one in messages_of(case.operation)]
        mark = choice_asked().mark if case.operation == ALLREDUCE else ""  # a script's own allreduces have no codec
        names = [f"{mark}{case.name}.{index}" for index in range(len(tensors))]

        def call() -> None:
            started = zip(cycle(begins), tensors, names, strict=False)
            for handle in [begin(tensor, name) for begin, tensor, name in started]:
                hvd.synchronize(handle)

        return call

    def _record(self, calls: int) -> None:
        # The recorder keeps messages by steps, and only an allreduce begins one: this one, and later every call.
        self._library.horovod_paceline_record_start(calls + 1)
        self._hvd.allreduce(self._one, name="collectives.begin")

    def _recorded(self, messages_per_call: int) -> list[float]:
        from paceline.record.snapshot import take

        # A message is recorded after its results are delivered: wait for the thread that does both.
        self._hvd.barrier()
        steps = take(self._library).steps
        self._library.horovod_paceline_record_stop()
        messages = [one for step in steps for one in step.collectives if one.kind != "barrier"]
        messages = sorted(messages, key=lambda one: one.start_s)[1:]  # without that of `_record`
        calls = [messages[at : at + messages_per_call] for at in range(0, len(messages), messages_per_call)]
        return [max(one.end_s for one in call) - min(one.start_s for one in call) for call in calls]
