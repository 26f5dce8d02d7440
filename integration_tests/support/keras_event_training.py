"""A training of three variables in Keras under one exchange of the table of events, compared with one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

import paceline.keras as hvd
from integration_tests.support.arming import armed_by_driver
from integration_tests.support.event_table import (
    Members,
    act_nowhere,
    always_exact,
    codec_of,
    exchange_of,
    updates_in_message,
)
from integration_tests.support.events import ARMED
from integration_tests.support.keras_events import LARGEST, LOST
from integration_tests.support.keras_worlds import numpy

RATE, ELEMENTS = 2.0**-4, (300, 300, 300)
STEPS = 12  # of an armed training after its event: more than are negotiated again
LIBRARY = "tensorflow" if keras.backend.backend() == "tensorflow" else "torch"


class KerasEventTraining:
    """Three variables, their wrapped optimizer, and the expected values from one process.

    Steps are compiled on TensorFlow. `members`: the process set that trains, of which this rank is one; None: all
    ranks. `elements`: of the variables.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        column: str,
        label: str,
        passes: int = 1,
        scaled: bool = False,
        members: Members | None = None,
        elements: Sequence[int] = ELEMENTS,
    ) -> None:
        self.rank, self.column, self.label, self.passes = rank, column, label, passes
        self.members = Members(range(size), hvd.global_process_set) if members is None else members
        self.size = len(self.members.ranks)
        self.codec = codec_of(column)
        self.dtype = "float64" if self.codec == "none" else "float32"
        self.variables = [keras.Variable(np.zeros(n), dtype=self.dtype) for n in elements]
        self.wanted = [np.zeros(n) for n in elements]
        self.number, self.scaled = 0, scaled
        self.wrap()

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.column}, {self.label}, step {self.number}"

    def wrap(self) -> None:
        """Make the optimizer of the current variables, and the compiled step of all of them."""
        held: Any = keras.optimizers.SGD(RATE)
        if self.scaled:
            held = keras.optimizers.LossScaleOptimizer(held, initial_scale=64.0)
        self.optimizer = hvd.DistributedOptimizer(
            held,
            self.label,
            exchange=exchange_of(self.column, hvd, self.size),
            codec=self.codec,
            backward_passes_per_step=self.passes,
            process_set=self.members.process_set,
        )
        self.optimizer.build(self.variables)
        self.train([0, 1, 2])

    def train(self, trained: Sequence[int]) -> None:
        """Make a new step with gradients for these variables and None for the others."""
        self.trained = list(trained)

        def apply(*grads: Any) -> None:
            whole = dict(zip(trained, grads, strict=True))
            self.optimizer.apply([whole.get(index) for index in range(len(self.variables))], self.variables)

        self.apply = apply
        if LIBRARY == "tensorflow":
            import tensorflow as tf

            self.apply = tf.function(apply, autograph=False)

    def gradient(self, index: int, rank: int) -> np.ndarray[Any, Any]:
        """Gradient of a rank in this step."""
        ramp = np.arange(len(self.wanted[index])) % 13 + 16 * (self.number % 29) + 512 * index + 1024 * rank
        return ramp.astype(self.dtype)

    def step(
        self,
        factor: float = 1.0,
        changed: Any = None,
        counted: bool = True,
        act: Callable[[str], None] = act_nowhere,
    ) -> None:
        """Make one pass; `changed` modifies this rank's gradients, by variable; `act` is called with each moment."""
        act("before")
        grads = [self.gradient(index, self.rank) * np.asarray(factor, self.dtype) for index in self.trained]
        if changed is not None:
            changed(grads)
        self.apply(*map(keras.ops.convert_to_tensor, grads))
        if counted:
            self.count_of(self.members.ranks)
        self.number += 1
        act("after")

    def begin_step(self) -> None:
        """Nothing: an optimizer of Keras gets all gradients in the call that makes the update."""

    def finish_step(self) -> None:
        """One update."""
        self.step()

    def step_of(self, ranks: Sequence[int]) -> None:
        """One update to which only these ranks contribute, this one among them; the others have joined."""
        self.count_of(ranks)
        self.step(counted=False)

    def count_of(self, ranks: Sequence[int]) -> None:
        """One process makes the next pass with gradients of these ranks alone."""
        for index in self.trained:
            total = sum(self.gradient(index, rank).astype(np.float64) for rank in ranks)
            self.wanted[index] -= RATE * total / self.size

    def steps(self, updates: int = 3) -> None:
        """Make some updates, until steps are armed in that column."""
        if self.column == ARMED:
            armed_by_driver(LIBRARY, lambda _: self.step())
            return
        self._make(updates)

    def _make(self, updates: int) -> None:
        for _ in range(updates * self.passes):
            self.step()

    def check(self, indices: Sequence[int] = (0, 1, 2)) -> None:
        """Drain, and compare these variables with the expected values."""
        self.optimizer.drain()
        self.compare(indices)

    def compare(self, indices: Sequence[int] = (0, 1, 2)) -> None:
        """Compare these variables with the expected values."""
        # Residuals keep the scale of their step.
        allowed = RATE * LARGEST * LOST[self.codec] * self.size * (1.0 if self.scaled else 0.2)
        allowed *= updates_in_message(self.column)
        for index in indices:
            off = np.abs(numpy(self.variables[index]).astype(np.float64) - self.wanted[index]).max()
            assert off <= allowed, (
                f"{self}: variable {index} is off by {off / RATE * self.size:.6g} of summed gradients"
            )

    def go_on(self) -> None:
        """Make some updates after the event, and compare all variables with one process."""
        self._make(3 if self.column != ARMED else STEPS)
        self.check()

    @property
    def exact(self) -> bool:
        """True if weights are those of one process without a drain."""
        return always_exact(self.column)

    def meet(self) -> None:
        """Wait for all ranks."""
        hvd.allgather_object(None, name=f"{self.label}.meet")
