"""A training of PyTorch in the matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import paceline.torch as hvd
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import Injector
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
    gradient_names,
    off_from_expected,
    while_exchanging,
    within_step,
)
from integration_tests.support import arming
from integration_tests.support.merging import ByHand, repeat


class TorchTraining:
    """Parameters whose gradients are submitted one by one, and their wrapped optimizer."""

    def __init__(self, case: Case, injector: Injector, rank: int) -> None:
        self.hvd = hvd
        self._case, self._injector, self._rank = case, injector, rank
        self._at = -1
        self._parameters = [torch.nn.Parameter(torch.zeros(count)) for count in elements(case, injector)]
        # Before Paceline's own hooks: the gradient of the first parameter has not been submitted.
        self._parameters[0].register_hook(self._within)
        self._optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self._parameters, lr=RATE),
            [(f"{LABEL}.{number}", one) for number, one in enumerate(self._parameters)],
            exchange=exchange_of(case, hvd),
        )
        self._hand: ByHand | None = None

    def begin(self) -> int:
        """Make a step; with a plan, steps until the plan is in force, armed if the case is."""
        if not self._case.planned:
            self.step(0, -1)
            return 1
        self._hand = ByHand("torch").start()
        self.step(0, -1)
        arming.meet()
        self._hand.follow(self._groups(), arming.CALM_S)
        if not self._case.armed:
            self.step(1, -1)
            return 2
        return repeat("torch", lambda step: self.step(step, -1), arming.is_armed, 1, arming.state)

    def _groups(self, together: int = 1) -> list[list[str]]:
        assert self._hand is not None
        names = gradient_names(self._hand)
        return [names[begin : begin + together] for begin in range(0, len(names), together)]

    def step(self, step: int, at: int) -> None:
        self._at = at
        self._offer_plan()
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

    def _offer_plan(self) -> None:
        if self._hand is None or not self._injector.is_at(Moment.PLAN, self._at):
            return
        if self._rank == 0:
            self._hand.send(self._groups(together=2), arming.CALM_S)
            self._injector.reached("offered")
        elif self._injector.victim:
            self._injector.wait_for("offered", [0])

    def _within(self, _gradient: torch.Tensor) -> None:
        state = arming.state()
        if self._case.exchange != "local" or not self._injector.is_at(Moment.MESSAGE, self._at):
            within_step(self._injector, self._at, armed=state.state, armed_steps=state.steps)
        count = changed_shape(self._injector, self._at)
        if count is not None:
            if self._injector.case.fault.moment is Moment.ROUND:
                hvd.partial_allreduce(torch.ones(count), name=EXTRA, quorum=self._case.size)
            else:
                hvd.allreduce(torch.ones(count), name=EXTRA)

    def drain(self) -> None:
        self._optimizer.drain()

    def weights(self) -> list[np.ndarray[Any, Any]]:
        return [one.detach().numpy().copy() for one in self._parameters]

    def off(self, steps: int) -> float:
        return off_from_expected(self.weights(), self._case.size, steps)

    def end(self) -> None:
        """Nothing: shutdown() makes the updates that are left."""
