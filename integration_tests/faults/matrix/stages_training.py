"""A training in pipeline stages in the matrix: each rank has a part of the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import paceline.torch as hvd
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import Injector
from integration_tests.faults.matrix.training import before_step, while_exchanging, within_step
from integration_tests.support.stage_training import accumulate, sgd

WIDTH = 16
ROWS, LARGE_ROWS = 12, 400_000  # the activations of the latter have 25 MB
MICRO_BATCHES = 3


class _Reached(torch.autograd.Function):
    """The identity, which reports backward passes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, report: Callable[[], None]) -> Tensor:
        ctx.report = report
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.report()
        return gradients[0], None


class _Layer(nn.Module):
    def __init__(self, report: Callable[[], None]) -> None:
        super().__init__()
        self.report = report
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, value: Tensor) -> Tensor:
        return _Reached.apply(self.inner(value), self.report)


class StagesTraining:
    """A model of two layers for each stage, compared with one process."""

    def __init__(self, case: Case, injector: Injector, rank: int) -> None:
        self.hvd = hvd
        self._case, self._injector, self._rank = case, injector, rank
        self._at = -1
        torch.manual_seed(1)
        layers = [one for _ in range(case.size) for one in (_Layer(self._within), nn.Tanh())]
        self._alone = copy.deepcopy([one.inner if isinstance(one, _Layer) else one for one in layers])
        self._pipeline = hvd.Pipeline(
            layers,
            sgd,
            nn.functional.mse_loss,
            stages=[2 * number for number in range(1, case.size)],
            schedule="1f1b",
            n_microbatches=MICRO_BATCHES,
        )

    def begin(self) -> int:
        self.step(0, -1)
        return 1

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        rows = LARGE_ROWS if self._case.large and self._at == self._case.fault.step else ROWS
        own = torch.Generator().manual_seed(step)
        return torch.randn(rows, WIDTH, generator=own), torch.zeros(rows, WIDTH)

    def step(self, step: int, at: int) -> None:
        self._at = at
        if at == self._case.fault.step:
            self._injector.reached("submitted")
        before_step(self._injector, at)
        while_exchanging(self._injector, at)
        self._pipeline.step(*self._batch(step))

    def _within(self) -> None:
        within_step(self._injector, self._at)

    def drain(self) -> None:
        self._pipeline.drain()

    def weights(self) -> list[np.ndarray[Any, Any]]:
        """Weights of all stages, on rank 0."""
        state = self._pipeline.consolidate()
        return [] if state is None else [one.detach().numpy().copy() for one in state["model"].values()]

    def off(self, steps: int) -> float:
        """Largest difference from one process, on rank 0; 0 if the batches were too large to repeat them."""
        found = self.weights()
        if self._case.large or not found:
            return 0.0
        self._at = -1
        alone = nn.Sequential(*self._alone)
        accumulate(alone, sgd, [self._batch(step) for step in range(steps)], MICRO_BATCHES)
        wanted = [one.detach().numpy() for one in alone.state_dict().values()]
        return max(float(abs(one - other).max()) for one, other in zip(found, wanted, strict=True))

    def end(self) -> None:
        """Close the pipeline; rank 0 may still receive the stages of others, which must not shut down before."""
        self._pipeline.close()
        hvd.barrier()
