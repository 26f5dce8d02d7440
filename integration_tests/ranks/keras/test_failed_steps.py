"""Compiled steps that raise and that the script survives: they count as if they had not been called, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from integration_tests.support.pairs import by_pairs
from integration_tests.support.ranks import ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
ROUNDS = 12
ELEMENTS = 20_000
# Of the check: before the gradients, between them and the update, or an operation that all gradients depend on.
PLACES = ("before", "between", "within")


def _steps(
    rank: int, apply: Callable[[list[Any], list[Any]], None], variables: list[Any], place: str
) -> Callable[[int, bool], bool]:
    """A compiled step; called with a number and a flag to fail, it returns True if it was made."""

    @tf.function
    def step(number: Any, fails: Any) -> None:
        if place == "before":
            tf.debugging.assert_equal(fails, False, "of the script")
        with tf.GradientTape() as tape:
            factor = 1.0
            if place == "within":  # after all that waits for nothing
                slow = tf.reduce_sum(tf.sort(tf.random.uniform([ELEMENTS])))
                factor = tf.gather([1.0], tf.cast(tf.logical_and(fails, slow > 0), tf.int32))
            loss = tf.add_n([tf.reduce_sum(one * (10 * number + rank) * factor) for one in variables])
        gradients = tape.gradient(loss, variables)
        if place == "between":
            slow = tf.reduce_sum(tf.sort(tf.random.uniform([ELEMENTS])))  # gradients are there sooner
            tf.debugging.assert_equal(tf.logical_and(fails, slow > 0), False, "of the script")
        apply(gradients, variables)

    def call(number: int, fails: bool) -> bool:
        try:
            step(tf.constant(float(number)), tf.constant(fails))
        except tf.errors.InvalidArgumentError as error:
            assert fails and ("of the script" if place != "within" else "not in [0, 1)") in str(error), error
            return False
        return True

    return call


@pytest.mark.parametrize(
    ("exchange", "place", "passes", "everywhere"),
    by_pairs(("sync", "pipelined", "partial", "local", "split"), PLACES, (1, 2, 3), (True, False)),
)
@ranks(2, env=TENSORFLOW, hvd="paceline.keras")
def test_a_failed_pass_leaves_no_trace(
    rank: int, size: int, hvd: Any, exchange: str, passes: int, place: str, everywhere: bool
) -> None:
    settings = {"partial": hvd.Partial(quorum=size, sync_every=2), "local": hvd.Local(sync_every=2)}
    chosen = settings.get(exchange, exchange)
    variables = [tf.Variable(tf.zeros(ELEMENTS)) for _ in range(3)]
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), name=f"{exchange}{passes}{place}{everywhere}", exchange=chosen,
        backward_passes_per_step=passes,
    )  # fmt: skip
    optimizer.build(variables)
    step = _steps(rank, lambda grads, to: optimizer.apply(grads, to), variables, place)
    wanted, number = 0.0, 0
    for turn in range(ROUNDS):
        for one in range(passes):
            if everywhere and turn % passes == one:  # a batch that fails is left out
                assert not step(1000, True)
            if not everywhere and rank == turn % size:  # another in its place, on one rank
                assert not step(2000, True)
            number += 1
            assert step(number, False)
            wanted -= 10 * number + (size - 1) / 2
    optimizer.drain()
    # Keras counts a step of its own as soon as nothing but data is in the way.
    assert optimizer.iterations.numpy() == ROUNDS * passes or place == "within"
    for variable in variables:
        np.testing.assert_allclose(variable.numpy(), np.full(ELEMENTS, wanted), rtol=1e-6)


@ranks(2, env=TENSORFLOW, hvd="paceline.keras")
def test_a_failed_step_is_no_update_of_an_average(rank: int, size: int, hvd: Any) -> None:
    for number, exchange in enumerate((hvd.Local(sync_every=4), hvd.Partial(quorum=size, sync_every=4))):
        variables = [tf.Variable(tf.zeros(ELEMENTS)) for _ in range(3)]
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name=f"average{number}", exchange=exchange)
        optimizer.build(variables)
        step = _steps(rank, optimizer.apply, variables, "within")
        wanted = 0.0
        for update in range(1, 8):
            assert rank or not step(1000, True)
            assert step(update, False)
            wanted -= 10 * update + (size - 1) / 2
        optimizer.drain()  # raises where ranks have counted differently
        for variable in variables:
            np.testing.assert_allclose(variable.numpy(), np.full(ELEMENTS, wanted), rtol=1e-6)


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_a_tape_submits_nothing_of_a_failed_step(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("sync", "pipelined"):
        variables = [tf.Variable(tf.zeros(ELEMENTS)) for _ in range(3)]
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(variables)

        @tf.function
        def step(number: Any, fails: Any, to: Any = variables, by: Any = optimizer, exchange: str = exchange) -> None:
            slow = tf.reduce_sum(tf.sort(tf.random.uniform([ELEMENTS])))
            tf.debugging.assert_equal(tf.logical_and(fails, slow > 0), False, "of the script")
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(one * (10 * number + rank)) for one in to])
            tape = hvd.DistributedGradientTape(tape, name=f"failed_{exchange}", exchange=exchange)
            by.apply(tape.gradient(loss, to), to)

        wanted = 0.0
        for number in range(1, ROUNDS):
            if number % 3:
                with pytest.raises(tf.errors.InvalidArgumentError, match="of the script"):
                    step(tf.constant(1000.0), tf.constant(True))
            step(tf.constant(float(number)), tf.constant(False))
            wanted -= 10 * number + (size - 1) / 2
        hvd.drain_tape(optimizer, variables, name=f"failed_{exchange}")
        for variable in variables:
            np.testing.assert_allclose(variable.numpy(), np.full(ELEMENTS, wanted), rtol=1e-6)


@ranks(2, env=TENSORFLOW, hvd="paceline.keras")
def test_steps_of_different_variables_count_their_passes_apart(rank: int, size: int, hvd: Any) -> None:
    variables = [tf.Variable(tf.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="apart", backward_passes_per_step=2)
    optimizer.build(variables)

    def step_of(variable: Any) -> Any:
        return tf.function(lambda number: optimizer.apply([tf.fill([3], 10 * number + rank)], [variable]))

    steps, wanted = [step_of(variable) for variable in variables], [0.0, 0.0]
    for number in range(8):
        steps[number % 2](tf.constant(float(number)))
        wanted[number % 2] -= 10 * number + (size - 1) / 2
    for variable, sums in zip(variables, wanted, strict=True):
        np.testing.assert_allclose(variable.numpy(), [sums] * 3)
    steps[1](tf.constant(8.0))
    assert int(optimizer._agg_helper.counter) == 1  # Horovod's name for it, which its users' tests read
