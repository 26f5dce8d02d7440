"""Every event of docs/developers/events.md in compiled steps of Keras: equal to one process, or refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.keras as hvd
import paceline.tensorflow as hvd_tape
from integration_tests.support.event_table import cases, environment, label
from integration_tests.support.events import ARMED, COLUMNS, RESIDUAL
from integration_tests.support.keras_event_training import KerasEventTraining
from integration_tests.support.keras_worlds import numpy
from integration_tests.support.merging import ask_for
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError
from paceline.keras3 import same_gradients

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
EXCHANGES = tuple(column for column in COLUMNS if column != ARMED)
UNSCALED = ("partial", "local")


def accumulation(training: KerasEventTraining) -> None:
    """A drain within an accumulation does not change it."""
    training.steps()
    training.step()
    training.check([])
    training.step()
    training.check()
    training.go_on()


def skipped_step(training: KerasEventTraining) -> None:
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


def not_finite(training: KerasEventTraining) -> None:
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


def absent_on_all_ranks(training: KerasEventTraining) -> None:
    """A variable without a gradient stays unchanged, then gets gradients."""
    training.train([0, 1])
    training.steps()
    training.check()
    training.train([0, 1, 2])
    training.go_on()


def frozen_and_thawed(training: KerasEventTraining) -> None:
    """Freeze and unfreeze a variable, with a drain before each."""
    training.steps()
    for trained in ([0, 2], [0, 1, 2]):
        training.check()
        training.train(trained)
        training.steps()
    training.go_on()


def replaced_or_added(training: KerasEventTraining) -> None:
    """Refused: Keras' optimizers are built for one list of variables."""
    training.steps()
    training.check()
    new = keras.Variable(np.zeros(7), dtype=training.dtype)
    grads = [tf.constant(training.gradient(index, training.rank)) for index in range(3)]
    with pytest.raises(ValueError, match="Unknown variable"):
        training.optimizer.apply([*grads, tf.zeros(7, training.dtype)], [*training.variables, new])


def changed_after_submission(training: KerasEventTraining) -> None:
    """Changes of a script's arrays after apply() has returned have no effect."""
    training.steps()
    kept: list[Any] = []
    for _ in range(2):
        training.step(changed=kept.extend)
        for one in kept:
            one[:] = 1e9
    training.go_on()


def second_optimizer(training: KerasEventTraining) -> None:
    """A second optimizer of the same name, alternating with the first one."""
    training.steps()
    other = KerasEventTraining(training.rank, training.size, training.column, training.label)
    for _ in range(4):
        training.step()
        other.step()
    other.check()
    training.go_on()


def other_collectives(training: KerasEventTraining) -> None:
    """A metric and a broadcast between steps: both are exact."""
    rank, size = training.rank, training.size
    metric = np.arange(300, dtype=np.float32) * 1.25
    for _ in range(3):
        training.step()
        found = hvd_tape.allreduce(tf.constant(metric + rank), op=hvd_tape.Sum, name=f"{training.label}.metric").numpy()
        np.testing.assert_array_equal(found, size * metric + size * (size - 1) / 2)
        assert hvd_tape.broadcast(tf.constant(float(rank)), 1, name=f"{training.label}.root").numpy() == 1.0
    training.go_on()


def _saved(training: KerasEventTraining) -> bytes:
    training.meet()  # all ranks have made the same updates
    values = [numpy(one) for one in training.variables]
    state = pickle.dumps([training.optimizer.in_flight(), values, training.wanted, training.number])
    training.meet()
    return state


def _load(training: KerasEventTraining, saved: bytes, wrap: bool = True) -> None:
    state, values, training.wanted, training.number = pickle.loads(saved)
    for one, value in zip(training.variables, values, strict=True):
        one.assign(value)
    if wrap:
        training.wrap()
    training.optimizer.load_in_flight(state)


def saved_and_loaded(training: KerasEventTraining) -> None:
    """Each rank loads its own state into another optimizer; updates after saving are discarded."""
    training.steps()
    saved = _saved(training)
    training.steps()
    training.check()
    _load(training, saved)
    training.go_on()


def new_world(training: KerasEventTraining) -> None:
    """As an elastic reset: ranks continue from their commit, in the steps that were compiled before."""
    training.steps()
    saved = _saved(training)
    training.steps()
    training.meet()
    hvd.shutdown()
    hvd.init()
    _load(training, saved, wrap=False)
    training.go_on()


EVENTS: dict[str, Callable[[KerasEventTraining], None]] = {
    event.__name__: event
    for event in (
        accumulation, skipped_step, not_finite, absent_on_all_ranks, frozen_and_thawed, replaced_or_added,
        changed_after_submission, second_optimizer, other_collectives, saved_and_loaded, new_world,
    )
}  # fmt: skip


def _try(rank: int, size: int, event: str, column: str) -> None:
    passes, scaled = 1 + (event == "accumulation"), event == "skipped_step"
    EVENTS[event](KerasEventTraining(rank, size, column, f"table_{event}_{label(column)}", passes, scaled))
    if column == ARMED:
        ask_for("tensorflow", "threshold")


@pytest.mark.parametrize(("event", "column"), cases(__file__, "test_as_one_process", (ARMED, RESIDUAL)))
def test_as_one_process(event: str, column: str) -> None:
    run_ranks(_try, 2, event, column, env=TENSORFLOW | environment(column), fresh=event == "new_world")


@pytest.mark.parametrize("column", [one if one in ("sync", "local") else more(one) for one in EXCHANGES])
@ranks(2, env=TENSORFLOW, fresh=True, hvd="paceline.keras")
def test_a_gradient_that_one_rank_lacks(rank: int, size: int, hvd: Any, column: str) -> None:
    training = KerasEventTraining(rank, size, column, f"absent_{label(column)}")
    training.train([0, 1, 2] if rank == 0 else [0, 2])
    with pytest.raises(hvd.UsageError, match=rf"of 2 to 3 variables; rank {rank} of {3 - rank}"):
        training.steps()


# Under a partial exchange the other rank keeps training: a finished rank takes part with zeros.
@pytest.mark.parametrize("column", [one if one == "sync" else more(one) for one in EXCHANGES if one != "partial"])
@ranks(2, env=TENSORFLOW, fresh=True, hvd="paceline.keras")
def test_a_gradient_that_one_rank_lacks_later(rank: int, size: int, hvd: Any, column: str) -> None:
    training = KerasEventTraining(rank, size, column, f"absent_later_{label(column)}")
    training.steps()
    same_gradients.LIMIT_S = 2.0
    training.train([0, 1, 2] if rank == 0 else [0, 2])
    with pytest.raises(
        Exception, match="waited for all ranks at .*for the first time of these" if rank else "(?i)left|ended|shut"
    ):
        training.steps(8)  # a pipelined rank is ahead, a local one waits for its second average
    hvd.shutdown()  # as a script that ends by this error does


def _save(rank: int, size: int, column: str) -> bytes:
    training = KerasEventTraining(rank, size, column, f"ranks_{label(column)}")
    training.steps(4)  # a local exchange averages then
    return _saved(training)


def _go_on_with(rank: int, size: int, column: str, saved: bytes) -> None:
    training = KerasEventTraining(rank, size, column, f"ranks_{label(column)}")
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
