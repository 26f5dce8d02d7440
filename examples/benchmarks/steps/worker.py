"""A rank that makes steps when the controller orders them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from paceline.examples.benchmarks.harness import usage
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.system import load
from paceline.examples.benchmarks.steps import plans
from paceline.examples.benchmarks.steps.plans import Merging, Ready, WarmUp

WARM_UP_STEPS = 3  # DDP rebuilds its buckets after the first step; Horovod's response cache is filled after it


@dataclass(frozen=True)
class Run:
    """Order of `fill` steps without compute, `settle` ordinary ones, then `steps` measured ones."""

    fill: int
    settle: int
    steps: int


@dataclass(frozen=True)
class Measured:
    """Totals of the measured steps of one rank: wall clock, figures, counters of the system; its plan afterwards."""

    steps: int
    wall_s: float
    figures: Mapping[str, float]
    counters: Mapping[str, int] | None
    merging: Merging | None = None
    messages: Any = None


class StepWorker(ABC):
    """Answers `WarmUp` with `Ready`, and `Run` with `Measured`."""

    def __init__(self, planned: bool) -> None:
        self._planned = planned
        self.hello: Ready

    def answer(self, order: Any, control: Connection) -> Any:
        """Make steps."""
        if isinstance(order, WarmUp):
            ready = self.warm_up(order.steps)
            if order.check:
                self.checked_step()
            return ready
        assert isinstance(order, Run)
        return self.measure(order)

    def warm_up(self, steps: int) -> Ready:
        """Make unmeasured steps."""
        for _ in range(steps):
            begin_s = time.monotonic()
            self.step()
            step_s = time.monotonic() - begin_s
        return Ready(step_s, self.merging())

    def merging(self) -> Merging | None:
        """Return the state of merging by plan, for a system that plans."""
        return plans.of_this_rank() if self._planned else None

    @abstractmethod
    def step(self) -> None:
        """Make a step."""

    @abstractmethod
    def checked_step(self) -> None:
        """Make a step whose results are checked. Raises RuntimeError if one is wrong."""

    @abstractmethod
    def measure(self, run: Run) -> Measured:
        """Make measured steps."""


class TrainingWorker(StepWorker):
    """Trains by `_training`, which has `step` and `counters`."""

    _training: Any

    def step(self) -> None:
        """Make a training step."""
        self._training.step()

    def fill(self, steps: int) -> None:
        """Make the first of the unmeasured steps, which fill pipelines."""
        for _ in range(steps):
            self.step()

    def measure(self, run: Run) -> Measured:
        """Make measured training steps."""
        self.fill(run.fill)
        for _ in range(run.settle):
            self.step()
        counted, used = self._training.counters(), usage.process()
        begin_s = time.monotonic()
        for _ in range(run.steps):
            self.step()
        wall_s = time.monotonic() - begin_s
        used, counted_end = usage.process().since(used), self._training.counters()
        figures = {"cpu_s": used.cpu_s, "wakeups": float(used.wakeups)}
        return Measured(run.steps, wall_s, figures, difference(counted, counted_end), self.merging())


class NetworkWorker(TrainingWorker):
    """Trains a network.

    `options`: "training" is "module:function", "model" a name of networks/models.py; "averages" means that gradients
    are the mean over all ranks, `age` steps later, which is then checked.
    """

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        import torch

        from paceline.examples.benchmarks.networks import models
        from paceline.examples.benchmarks.networks.computing import ComputingNetwork
        from paceline.examples.benchmarks.networks.sleeping import SleepingNetwork

        super().__init__(options.get("planned", False))
        torch.set_num_threads(1)
        model = models.find(options["model"])
        self._place, self._age, self._averages = place, options.get("age", 0), options.get("averages", True)
        self._network = ComputingNetwork(place.rank) if model.computes else SleepingNetwork(model)
        connect: Any = load(options["training"])
        self._training = connect(self._network, place)
        self.checked_step()
        self.hello = self.warm_up(WARM_UP_STEPS)

    def checked_step(self) -> None:
        """Mark the gradients of this rank, and check the marks of all ranks at the step where they are due."""
        if not self._averages:
            return
        self._network.mark(self._place.rank)
        for _ in range(self._age):
            self.step()
            self._network.check_not_yet(self._place.size)
        self.step()
        self._network.check_mean(self._place.size)

    def fill(self, steps: int) -> None:
        """Make these without the time of computing."""
        self._network.hurried = True
        super().fill(steps)
        self._network.hurried = False


def difference(begin: Mapping[str, int] | None, end: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the counts in between; None without counters."""
    return None if begin is None or end is None else {name: end[name] - begin[name] for name in begin}
