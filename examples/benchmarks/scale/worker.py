"""A rank whose steps only submit gradients, part by part."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from paceline.examples.benchmarks.harness import connections, usage
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.usage import Used
from paceline.examples.benchmarks.scale.messages import Recording
from paceline.examples.benchmarks.steps.worker import Measured, Run, StepWorker, difference
from paceline.launch.quantities import ELEMENT_BYTES

WARM_UP_STEPS = 3  # the response cache is filled after the first
# Pause between the end of a step and the next one's first gradients, where training would compute.
PAUSE_S = 2e-3
# Time for Horovod's last round and its timers to end.
SETTLE_S = 0.3
_NAME = "scale.part{part:02}.tensor{index:04}"


@dataclass(frozen=True)
class Rest:
    """Order to submit nothing for `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Rested:
    """Usage of one rank during a rest: of all threads, and of Horovod's background thread."""

    process: Used
    background: Used


def names_of(tensors: int, parts: int) -> list[list[str]]:
    """Return the names of each part's tensors, spread as evenly as possible; the first parts have one more."""
    least, more = divmod(tensors, parts)
    return [[_NAME.format(part=part, index=index) for index in range(least + (part < more))] for part in range(parts)]


class PartsWorker(StepWorker):
    """Averages gradients in place. `options`: tensors, parts, size_bytes of a tensor, planned."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        import torch

        super().__init__(options["planned"])
        before = usage.tasks()
        connections.connect_horovod(place)
        import horovod.torch as hvd

        self._hvd: Any = hvd
        self._rank, self._size = place.rank, place.size
        elements = options["size_bytes"] // ELEMENT_BYTES
        names = names_of(options["tensors"], options["parts"])
        self._parts = [{name: torch.zeros(elements) for name in part} for part in names]
        for _ in range(WARM_UP_STEPS):
            self.checked_step()
        self.hello = self.warm_up(1)
        self._background = usage.background(before)  # threads that connected ranks have ended by now

    def answer(self, order: Any, control: Connection) -> Any:
        """Make steps, or answer `Rest` with `Rested`."""
        return self._rest(order) if isinstance(order, Rest) else super().answer(order, control)

    def step(self) -> None:
        """Submit each part and wait for it."""
        hvd = self._hvd
        for part in self._parts:
            handles = [hvd.allreduce_async_(tensor, name=name) for name, tensor in part.items()]
            for handle in handles:
                hvd.synchronize(handle)

    def checked_step(self) -> None:
        """Make a step and check its means against known values."""
        for number, tensor in enumerate(self._tensors()):
            tensor.fill_(self._rank + number)
        self.step()
        for number, tensor in enumerate(self._tensors()):
            expected = (self._size - 1) / 2 + number
            if not bool((tensor - expected).abs().max() <= 1e-5 * self._size):
                raise RuntimeError(f"tensor {number} on rank {self._rank} is {tensor[0]:g}, expected {expected:g}")

    def measure(self, run: Run) -> Measured:
        """Make measured steps, with a pause before each."""
        for _ in range(run.settle):
            self.step()
        counted = connections.counters()
        recording = Recording(run.steps) if counted is not None else None
        process, thread = usage.process(), usage.thread(self._background)
        wall_s = sum(self._timed_step_s() for _ in range(run.steps))
        process, thread = usage.process().since(process), usage.thread(self._background).since(thread)
        counted = difference(counted, connections.counters())
        figures = {"cpu_s": process.cpu_s, "wakeups": float(process.wakeups), "background_s": thread.cpu_s}
        messages = None if recording is None else recording.end()
        return Measured(run.steps, wall_s, figures, counted, self.merging(), messages)

    def _timed_step_s(self) -> float:
        time.sleep(PAUSE_S)
        begin_s = time.monotonic()
        self.step()
        return time.monotonic() - begin_s

    def _rest(self, order: Rest) -> Rested:
        time.sleep(SETTLE_S)
        process, thread = usage.process(), usage.thread(self._background)
        time.sleep(order.seconds)
        return Rested(usage.process().since(process), usage.thread(self._background).since(thread))

    def _tensors(self) -> Sequence[Any]:
        return list(itertools.chain.from_iterable(part.values() for part in self._parts))
