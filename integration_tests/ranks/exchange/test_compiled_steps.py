"""Compiled steps of one optimizer that train different variables in turn, as in a GAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.keras as hvd
from integration_tests.support.ranks import ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
TURNS = 3


class _Pair:
    """Two variables of one optimizer, with a compiled step each; gradients are whole numbers of rank and step."""

    def __init__(self, rank: int, size: int, name: str, exchange: Any, passes: int = 1) -> None:
        self.rank, self.size, self.passes, self.number = rank, size, passes, 0
        self.variables = [keras.Variable(np.zeros(3, np.float32), name=f"{name}{n}") for n in range(2)]
        self.optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), name=name, exchange=exchange, backward_passes_per_step=passes
        )
        self.optimizer.build(self.variables)
        self.steps = [tf.function(self._step_of(variable), autograph=False) for variable in self.variables]
        self.wanted = np.zeros(2)

    def _step_of(self, variable: Any) -> Callable[[Any], None]:
        def step(number: Any) -> None:
            self.optimizer.apply([tf.fill([3], 10 * number + self.rank)], [variable])

        return step

    def train(self, which: int) -> None:
        """One update of a variable."""
        for _ in range(self.passes):
            self.number += 1
            self.steps[which](tf.constant(float(self.number)))
            self.wanted[which] -= 10 * self.number + (self.size - 1) / 2

    def check(self) -> None:
        """Compare with one process."""
        for variable, wanted in zip(self.variables, self.wanted, strict=True):
            np.testing.assert_allclose(variable.numpy(), [wanted] * 3, rtol=1e-6)


def _exchanges(hvd: Any, size: int) -> list[Any]:
    return [
        hvd.Pipelined(k=2),
        hvd.Pipelined(k=3),
        hvd.Pipelined(k=2, warmup_steps=2),
        hvd.Pipelined(k=3, warmup_steps=3),
        hvd.Partial(quorum=size),
        hvd.Partial(quorum=size, sync_every=2),
    ]


@ranks(2, env=TENSORFLOW)
def test_turns_with_a_drain_between_them(rank: int, size: int) -> None:
    for number, exchange in enumerate(_exchanges(hvd, size)):
        for passes in (1, 2):
            pair = _Pair(rank, size, f"drained{number}_{passes}", exchange, passes)
            for turn in range(2 * TURNS):
                for _ in range(1 + turn % 3):
                    pair.train(turn % 2)
                pair.optimizer.drain()
                pair.check()
                assert pair.optimizer.in_flight() is None or not pair.optimizer.in_flight()["in_flight"]


@ranks(2, env=TENSORFLOW)
def test_turns_without_a_drain_are_refused(rank: int, size: int) -> None:
    for number, exchange in enumerate(_exchanges(hvd, size)):
        for passes in (1, 2):
            pair = _Pair(rank, size, f"refused{number}_{passes}", exchange, passes)
            for which in (0, 1) if number % 2 else ():  # traces both, or the other one while something is in flight
                pair.train(which)
                pair.optimizer.drain()
            for _ in range(3):  # more than updates of a warm-up
                pair.train(0)
            state = pair.optimizer.in_flight()
            before, wanted = pair.number, pair.wanted.copy()
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                pair.train(1)
            for part in (f"refused{number}_{passes}", "expected", "found", "of number 1", "drain()"):
                assert part in str(refused.value), part
            assert pair.number == before + passes  # the pass that would have updated
            pair.wanted = wanted
            assert str(pair.optimizer.in_flight()) == str(state)
            pair.train(0)
            pair.optimizer.drain()
            pair.check()
            pair.passes = 1  # with two, the first was made before
            pair.wanted[1] -= 10 * (before + 1) + (size - 1) / 2 if passes == 2 else 0
            pair.train(1)
            pair.optimizer.drain()
            pair.check()


@ranks(2, env=TENSORFLOW)
def test_a_state_of_the_step_that_ran_last_is_resumed(rank: int, size: int) -> None:
    for number, exchange in enumerate(_exchanges(hvd, size)):
        first = _Pair(rank, size, f"saved{number}", exchange)
        for which in (0, 1, 0):
            first.train(which)
            first.train(which)
            if which != 0 or first.number < 5:
                first.optimizer.drain()
        hvd.allgather_object(None, name=f"saved{number}")  # no rank is still in the last update
        state = first.optimizer.in_flight()
        hvd.allgather_object(None, name=f"saved{number}")
        second = _Pair(rank, size, f"resumed{number}", exchange)
        for new, old in zip(second.variables, first.variables, strict=True):
            new.assign(old)
        second.wanted = first.wanted
        second.optimizer.load_in_flight(state)
        second.train(0)
        second.optimizer.drain()
        second.check()


@ranks(2, env=TENSORFLOW)
def test_groups_of_a_step_after_a_freeze(rank: int, size: int) -> None:
    for number, exchange in enumerate(_exchanges(hvd, size)):
        variables = [keras.Variable(np.zeros(length, np.float32)) for length in (3, 5, 7)]
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), name=f"groups{number}", exchange=exchange, groups=1
        )
        optimizer.build(variables)

        def step_of(trained: list[Any], optimizer: Any = optimizer) -> Any:
            return tf.function(lambda: optimizer.apply([tf.fill(one.shape, rank + 1.0) for one in trained], trained))

        for trained in (variables, variables[::2], variables[:2], variables):
            step = step_of(trained)
            for _ in range(3):
                step()
            optimizer.drain()
        for variable, steps in zip(variables, (12, 9, 9), strict=True):
            np.testing.assert_allclose(variable.numpy(), np.full(variable.shape, -steps * (size + 1) / 2))


@ranks(2, env=TENSORFLOW)
def test_turns_average_their_own_weights(rank: int, size: int) -> None:
    for number, exchange in enumerate((hvd.Local(sync_every=2), hvd.Local(sync_every=2, outer_momentum=0.5))):
        pair = _Pair(rank, size, f"averaged{number}", exchange)
        for _ in range(2):
            pair.train(0)
            pair.train(1)
        mine = [variable.numpy() for variable in pair.variables]
        for theirs in hvd.allgather_object(mine, name=f"averaged{number}"):
            np.testing.assert_array_equal(mine, theirs)
        # One update of the first is left, none of the second: a drain averages both all the same.
        for which in (0, 0, 0, 1, 1):
            pair.train(which)
        state = pair.optimizer.in_flight()
        assert state is not None and state["local"]["updates"] == 1
        pair.optimizer.load_in_flight(state)
        assert pair.optimizer.in_flight()["local"]["updates"] == 1
        pair.optimizer.drain()
        assert str(pair.optimizer.in_flight()) == "None" or pair.optimizer.in_flight()["local"]["updates"] == 0
        mine = [variable.numpy() for variable in pair.variables]
        for theirs in hvd.allgather_object(mine, name=f"averaged{number}"):
            np.testing.assert_array_equal(mine, theirs)
        if number == 0:
            pair.check()
