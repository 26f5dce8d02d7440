"""A training of Keras in the matrix, on either backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import paceline.keras as hvd
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import Injector
from integration_tests.faults.matrix.sentences import Moment
from integration_tests.faults.matrix.training import (
    EXTRA,
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
from integration_tests.support.keras_worlds import numpy
from integration_tests.support.merging import ByHand, repeat


class KerasTraining:
    """Variables, and a wrapped optimizer that gets all their gradients in one call."""

    def __init__(self, case: Case, injector: Injector, rank: int) -> None:
        self.hvd = hvd
        self._case, self._injector, self._rank = case, injector, rank
        self._library = "tensorflow" if case.backend == "tensorflow" else "torch"
        self._variables = [keras.Variable(np.zeros(count, np.float32)) for count in elements(case, injector)]
        self._optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(RATE), name="fault", exchange=exchange_of(case, hvd)
        )
        self._optimizer.build(self._variables)
        self._hand: ByHand | None = None

    def begin(self) -> int:
        """Make a step; with a plan, steps until the plan is in force, armed if the case is."""
        if not self._case.planned:
            self.step(0, -1)
            return 1
        self._hand = ByHand(self._library).start()
        self.step(0, -1)
        arming.meet(self._library)
        self._hand.follow(self._groups(), arming.CALM_S)
        if not self._case.armed:
            self.step(1, -1)
            return 2
        return repeat(
            self._library,
            lambda step: self.step(step, -1),
            lambda: arming.is_armed(self._library),
            1,
            lambda: arming.state(self._library),
        )

    def _groups(self, together: int = 1) -> list[list[str]]:
        assert self._hand is not None
        names = gradient_names(self._hand)
        return [names[begin : begin + together] for begin in range(0, len(names), together)]

    def step(self, step: int, at: int) -> None:
        injector, moment = self._injector, self._case.fault.moment
        if self._hand is not None and injector.is_at(Moment.PLAN, at):
            if self._rank == 0:
                self._hand.send(self._groups(together=2), arming.CALM_S)
                injector.reached("offered")
            elif injector.victim:
                injector.wait_for("offered", [0])
        before_step(injector, at)
        value = gradient(self._rank, step)
        gradients = [keras.ops.convert_to_tensor(np.full(one.shape, value, np.float32)) for one in self._variables]
        if moment is Moment.MESSAGE:
            while_exchanging(injector, at)
        else:
            state = arming.state(self._library)
            within_step(injector, at, armed=state.state, armed_steps=state.steps)
        count = changed_shape(injector, at)
        if count is not None:
            hvd.allreduce(keras.ops.ones((count,)), name=EXTRA)
        if at == self._case.fault.step:
            injector.reached("submitted")
        self._optimizer.apply(gradients, self._variables)

    def drain(self) -> None:
        self._optimizer.drain()

    def weights(self) -> list[np.ndarray[Any, Any]]:
        return [numpy(one) for one in self._variables]

    def off(self, steps: int) -> float:
        return off_from_expected(self.weights(), self._case.size, steps)

    def end(self) -> None:
        """Nothing: shutdown() makes the updates that are left."""
