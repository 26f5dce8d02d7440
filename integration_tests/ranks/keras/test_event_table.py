"""Every event of docs/developers/events.md in compiled steps of Keras: equal to one process, or refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.keras as hvd
import paceline.tensorflow as hvd_tape
from integration_tests.support.event_table import cases, environment, label
from integration_tests.support.events import ARMED, COLUMNS, RESIDUAL
from integration_tests.support.keras_events import LARGEST, LOST
from integration_tests.support.keras_worlds import numpy
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError
from paceline.keras3 import same_gradients

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
RATE, ELEMENTS = 2.0**-4, 300
EXCHANGES = tuple(column for column in COLUMNS if column != ARMED)
UNSCALED = ("partial", "local")


class _Training:
    """Three variables, their wrapped optimizer, and the expected values from one process."""

    def __init__(self, rank: int, size: int, column: str, label: str, passes: int = 1, scaled: bool = False) -> None:
        self.rank, self.size, self.column, self.label, self.passes = rank, size, column, label, passes
        self.codec = "q8" if column == RESIDUAL else "none"
        self.dtype = "float32" if column == RESIDUAL else "float64"
        self.variables = [keras.Variable(np.zeros(ELEMENTS), dtype=self.dtype) for _ in range(3)]
        self.wanted = [np.zeros(ELEMENTS) for _ in self.variables]
        self.number, self.scaled = 0, scaled
        self.wrap()

    def wrap(self) -> None:
        """Make the optimizer of the current variables, and the compiled step of all of them."""
        others = {
            "pipelined": "pipelined",
            "split": "split",
            "partial": hvd.Partial(quorum=self.size),
            "local": hvd.Local(sync_every=4),
        }
        held: Any = keras.optimizers.SGD(RATE)
        if self.scaled:
            held = keras.optimizers.LossScaleOptimizer(held, initial_scale=64.0)
        self.optimizer = hvd.DistributedOptimizer(
            held,
            self.label,
            exchange=others.get(self.column, "sync"),
            codec=self.codec,
            backward_passes_per_step=self.passes,
        )
        self.optimizer.build(self.variables)
        self.train([0, 1, 2])

    def train(self, trained: Sequence[int]) -> None:
        """Compile a new step with gradients for these variables and None for the others."""
        self.trained = list(trained)

        @tf.function(autograph=False)
        def apply(*grads: Any) -> None:
            whole = dict(zip(trained, grads, strict=True))
            self.optimizer.apply([whole.get(index) for index in range(len(self.variables))], self.variables)

        self.apply = apply

    def gradient(self, index: int, rank: int) -> np.ndarray[Any, Any]:
        """Gradient of a rank in this step."""
        ramp = np.arange(ELEMENTS) % 13 + 16 * (self.number % 29) + 512 * index + 1024 * rank
        return ramp.astype(self.dtype)

    def step(self, factor: float = 1.0, changed: Any = None, counted: bool = True) -> None:
        """Make one pass; `changed` modifies this rank's gradients, by variable."""
        grads = [self.gradient(index, self.rank) * np.asarray(factor, self.dtype) for index in self.trained]
        if changed is not None:
            changed(grads)
        self.apply(*map(tf.constant, grads))
        for index in self.trained if counted else ():
            self.wanted[index] -= RATE * sum(self.gradient(index, rank) for rank in range(self.size)) / self.size
        self.number += 1

    def steps(self, updates: int = 3) -> None:
        """Make some updates."""
        for _ in range(updates * self.passes):
            self.step()

    def check(self, indices: Sequence[int] = (0, 1, 2)) -> None:
        """Drain, and compare these variables with the expected values."""
        self.optimizer.drain()
        # Residuals keep the scale of their step.
        allowed = RATE * LARGEST * LOST[self.codec] * self.size * (1.0 if self.scaled else 0.2)
        for index in indices:
            off = np.abs(numpy(self.variables[index]).astype(np.float64) - self.wanted[index]).max()
            assert off <= allowed, (
                f"rank {self.rank}, {self.label}, {index}: off by {off / RATE * self.size:.6g} of summed gradients"
            )

    def go_on(self) -> None:
        """Make some updates after the event, and compare all variables with one process."""
        self.steps()
        self.check()

    def meet(self) -> None:
        """Wait for all ranks."""
        hvd.allgather_object(None, name=f"{self.label}.meet")


def accumulation(training: _Training) -> None:
    """A drain within an accumulation does not change it."""
    training.steps()
    training.step()
    training.check([])
    training.step()
    training.check()
    training.go_on()


def skipped_step(training: _Training) -> None:
    """An overflow on one rank under a LossScaleOptimizer."""
    if training.column in UNSCALED:
        with pytest.raises(UserError, match=r"(?s)scales its loss.*(late gradients|equally many).*bfloat16"):
            training.step()
        return
    for number in range(5):
        factor = float(numpy(training.optimizer.dynamic_scale))
        skipped = number == 2
        training.step(np.inf if skipped and training.rank == 1 else factor, counted=not skipped)
    assert float(numpy(training.optimizer.dynamic_scale)) == 32.0
    training.check()


def not_finite(training: _Training) -> None:
    """An infinity and a NaN in one gradient of one rank."""

    def spoil(grads: list[Any]) -> None:
        if training.rank == 1:
            grads[1][1:3] = np.inf, np.nan

    training.steps()
    training.step(changed=spoil)
    training.steps()
    training.check([0, 2])
    found, wanted = numpy(training.variables[1]), training.wanted[1]
    assert not np.isfinite(found[1:3]).any(), "an infinity or NaN has become a number"
    if training.column != RESIDUAL:  # q8 has one scale for many values
        np.testing.assert_array_equal(np.delete(found, [1, 2]), np.delete(wanted, [1, 2]))


def absent_on_all_ranks(training: _Training) -> None:
    """A variable without a gradient stays unchanged, then gets gradients."""
    training.train([0, 1])
    training.steps()
    training.check()
    training.train([0, 1, 2])
    training.go_on()


def frozen_and_thawed(training: _Training) -> None:
    """Freeze and unfreeze a variable, with a drain before each."""
    training.steps()
    for trained in ([0, 2], [0, 1, 2]):
        training.check()
        training.train(trained)
        training.steps()
    training.go_on()


def replaced_or_added(training: _Training) -> None:
    """Refused: Keras' optimizers are built for one list of variables."""
    training.steps()
    training.check()
    new = keras.Variable(np.zeros(7), dtype=training.dtype)
    grads = [tf.constant(training.gradient(index, training.rank)) for index in range(3)]
    with pytest.raises(ValueError, match="Unknown variable"):
        training.optimizer.apply([*grads, tf.zeros(7, training.dtype)], [*training.variables, new])


def changed_after_submission(training: _Training) -> None:
    """Changes of a script's arrays after apply() has returned have no effect."""
    training.steps()
    kept: list[Any] = []
    for _ in range(2):
        training.step(changed=kept.extend)
        for one in kept:
            one[:] = 1e9
    training.go_on()


def second_optimizer(training: _Training) -> None:
    """A second optimizer of the same name, alternating with the first one."""
    training.steps()
    other = _Training(training.rank, training.size, training.column, training.label)
    for _ in range(4):
        training.step()
        other.step()
    other.check()
    training.go_on()


def other_collectives(training: _Training) -> None:
    """A metric and a broadcast between steps: both are exact."""
    rank, size = training.rank, training.size
    metric = np.arange(300, dtype=np.float32) * 1.25
    for _ in range(3):
        training.step()
        found = hvd_tape.allreduce(tf.constant(metric + rank), op=hvd_tape.Sum, name=f"{training.label}.metric").numpy()
        np.testing.assert_array_equal(found, size * metric + size * (size - 1) / 2)
        assert hvd_tape.broadcast(tf.constant(float(rank)), 1, name=f"{training.label}.root").numpy() == 1.0
    training.go_on()


def _saved(training: _Training) -> bytes:
    training.meet()  # all ranks have made the same updates
    values = [numpy(one) for one in training.variables]
    state = pickle.dumps([training.optimizer.in_flight(), values, training.wanted, training.number])
    training.meet()
    return state


def _load(training: _Training, saved: bytes, wrap: bool = True) -> None:
    state, values, training.wanted, training.number = pickle.loads(saved)
    for one, value in zip(training.variables, values, strict=True):
        one.assign(value)
    if wrap:
        training.wrap()
    training.optimizer.load_in_flight(state)


def saved_and_loaded(training: _Training) -> None:
    """Each rank loads its own state into another optimizer; updates after saving are discarded."""
    training.steps()
    saved = _saved(training)
    training.steps()
    training.check()
    _load(training, saved)
    training.go_on()


def new_world(training: _Training) -> None:
    """As an elastic reset: ranks continue from their commit, in the steps that were compiled before."""
    training.steps()
    saved = _saved(training)
    training.steps()
    training.meet()
    hvd.shutdown()
    hvd.init()
    _load(training, saved, wrap=False)
    training.go_on()


EVENTS: dict[str, Callable[[_Training], None]] = {
    event.__name__: event
    for event in (
        accumulation, skipped_step, not_finite, absent_on_all_ranks, frozen_and_thawed, replaced_or_added,
        changed_after_submission, second_optimizer, other_collectives, saved_and_loaded, new_world,
    )
}  # fmt: skip


def _try(rank: int, size: int, event: str, column: str) -> None:
    passes, scaled = 1 + (event == "accumulation"), event == "skipped_step"
    EVENTS[event](_Training(rank, size, column, f"table_{event}_{label(column)}", passes, scaled))


@pytest.mark.parametrize(("event", "column"), cases(__file__, "test_as_one_process", (ARMED, RESIDUAL)))
def test_as_one_process(event: str, column: str) -> None:
    run_ranks(_try, 2, event, column, env=TENSORFLOW | environment(column), fresh=event == "new_world")


@pytest.mark.parametrize("column", [one if one in ("sync", "local") else more(one) for one in EXCHANGES])
@ranks(2, env=TENSORFLOW, fresh=True, hvd="paceline.keras")
def test_a_gradient_that_one_rank_lacks(rank: int, size: int, hvd: Any, column: str) -> None:
    training = _Training(rank, size, column, f"absent_{label(column)}")
    training.train([0, 1, 2] if rank == 0 else [0, 2])
    with pytest.raises(hvd.UsageError, match=rf"of 2 to 3 variables; rank {rank} of {3 - rank}"):
        training.steps()


# Under a partial exchange the other rank keeps training: a finished rank takes part with zeros.
@pytest.mark.parametrize("column", [one if one == "sync" else more(one) for one in EXCHANGES if one != "partial"])
@ranks(2, env=TENSORFLOW, fresh=True, hvd="paceline.keras")
def test_a_gradient_that_one_rank_lacks_later(rank: int, size: int, hvd: Any, column: str) -> None:
    training = _Training(rank, size, column, f"absent_later_{label(column)}")
    training.steps()
    same_gradients.LIMIT_S = 2.0
    training.train([0, 1, 2] if rank == 0 else [0, 2])
    with pytest.raises(
        Exception, match="waited for all ranks at .*for the first time of these" if rank else "(?i)left|ended|shut"
    ):
        training.steps(8)  # a pipelined rank is ahead, a local one waits for its second average
    hvd.shutdown()  # as a script that ends by this error does


def _save(rank: int, size: int, column: str) -> bytes:
    training = _Training(rank, size, column, f"ranks_{label(column)}")
    training.steps(4)  # a local exchange averages then
    return _saved(training)


def _go_on_with(rank: int, size: int, column: str, saved: bytes) -> None:
    training = _Training(rank, size, column, f"ranks_{label(column)}")
    if column == "partial":
        with pytest.raises(UserError, match=rf"(?s)rank 0 of 3, loaded by rank {rank} of 2.*each rank"):
            _load(training, saved)
            training.step()
        return
    _load(training, saved)
    training.go_on()


@pytest.mark.parametrize("column", EXCHANGES)
def test_states_of_another_number_of_ranks(column: str) -> None:
    saved = run_ranks(_save, 3, column, env=TENSORFLOW)
    run_ranks(_go_on_with, 2, column, saved[0], env=TENSORFLOW)
