"""A training of Keras in the matrix, on either backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import paceline.keras as hvd
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
from integration_tests.support.keras_worlds import numpy


class KerasTraining(PlannedTraining):
    """Variables, and a wrapped optimizer that gets all their gradients in one call."""

    hvd = hvd

    def __init__(self, case: Case, injector: Injector, rank: int) -> None:
        super().__init__(case, injector, rank, "tensorflow" if case.backend == "tensorflow" else "torch")
        self._variables = [keras.Variable(np.zeros(count, np.float32)) for count in elements(case, injector)]
        self._optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(RATE), name=LABEL, exchange=exchange_of(case, hvd)
        )
        self._optimizer.build(self._variables)

    def step(self, step: int, at: int) -> None:
        self.offer_plan(at)
        before_step(self._injector, at)
        value = gradient(self._rank, step)
        gradients = [keras.ops.convert_to_tensor(np.full(one.shape, value, np.float32)) for one in self._variables]
        if self._case.fault.moment is Moment.MESSAGE:
            while_exchanging(self._injector, at)
        else:
            within_step(self._injector, at, **self.armed())
        count = changed_shape(self._injector, at)
        if count is not None:
            hvd.allreduce(keras.ops.ones((count,)), name=EXTRA)
        if at == self._case.fault.step:
            self._injector.reached("submitted")
        self._optimizer.apply(gradients, self._variables)

    def drain(self) -> None:
        self._optimizer.drain()

    def weights(self) -> list[np.ndarray[Any, Any]]:
        return [numpy(one) for one in self._variables]
