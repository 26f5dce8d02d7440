"""A training of PyTorch in the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import paceline.torch as hvd
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import Injector
from integration_tests.faults.matrix.planned import PlannedTraining
from integration_tests.faults.matrix.sentences import Moment
from integration_tests.faults.matrix.training import (
    EXTRA,
    LABEL,
    RATE,
    before_step,
    changed_shape,
    elements,
    exchange_of,
    gradient,
    while_exchanging,
    within_step,
)


class TorchTraining(PlannedTraining):
    """Parameters whose gradients are submitted one by one, and their wrapped optimizer."""

    hvd = hvd

    def __init__(self, case: Case, injector: Injector, rank: int) -> None:
        super().__init__(case, injector, rank, "torch")
        self._at = -1
        self._parameters = [torch.nn.Parameter(torch.zeros(count)) for count in elements(case, injector)]
        # Before Paceline's own hooks: the gradient of the first parameter has not been submitted.
        self._parameters[0].register_hook(self._within)
        self._optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self._parameters, lr=RATE),
            [(f"{LABEL}.{number}", one) for number, one in enumerate(self._parameters)],
            exchange=exchange_of(case, hvd),
        )

    def step(self, step: int, at: int) -> None:
        self._at = at
        self.offer_plan(at)
        before_step(self._injector, at)
        self._optimizer.zero_grad()
        value = gradient(self._rank, step)
        # The last parameter is used last, so its gradient is the first of the backward pass.
        torch.stack([(one * value).sum() for one in self._parameters]).sum().backward()
        if at == self._case.fault.step:
            self._injector.reached("submitted")
        if self._case.exchange == "local":
            while_exchanging(self._injector, at)
        self._optimizer.step()

    def _within(self, _gradient: torch.Tensor) -> None:
        if self._case.exchange != "local" or not self._injector.is_at(Moment.MESSAGE, self._at):
            within_step(self._injector, self._at, **self.armed())
        count = changed_shape(self._injector, self._at)
        if count is not None and self._case.fault.moment is Moment.ROUND:
            hvd.partial_allreduce(torch.ones(count), name=EXTRA, quorum="majority")
        elif count is not None:
            hvd.allreduce(torch.ones(count), name=EXTRA)

    def drain(self) -> None:
        self._optimizer.drain()

    def weights(self) -> list[np.ndarray[Any, Any]]:
        return [one.detach().numpy().copy() for one in self._parameters]
