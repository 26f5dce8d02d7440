"""Two optimizers or tapes of one class in flight at the same time, as GANs have them: each gets its own averages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.tensorflow as tape_hvd
from integration_tests.support.ranks import ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
STEPS = 6
WAYS = ("one function", "nested functions", "threads")
ADDING_UP = "optimizers that add up"
# The first call of one that adds up makes variables, which TensorFlow allows in no other thread. Tapes are numbered in
# the order of first use.
CASES = [
    (one, way) for one in ("optimizers", ADDING_UP, "tapes") for way in WAYS if one == "optimizers" or way != "threads"
]


def _rows(rank: int) -> Any:
    return np.random.default_rng(rank).normal(size=(4, 3)).astype("float32")


def _train(rows: Any, way: str, wrap_optimizer: Callable[[Any], Any], wrap_tape: Callable[[Any], Any]) -> Any:
    """Weights of two models of one shape after a few steps, each towards a different target."""
    inputs = tf.constant(rows)

    def part(target: float) -> tuple[Any, Any]:
        layer = keras.layers.Dense(2)
        layer.build((None, 3))
        layer.set_weights([np.full((3, 2), 0.1 * target, "float32"), np.zeros(2, "float32")])
        optimizer = wrap_optimizer(keras.optimizers.SGD(0.1))
        optimizer.build(layer.trainable_variables)

        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(layer(inputs) - target))
            gradients = wrap_tape(tape).gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

        return layer, step

    (one, step_one), (two, step_two) = part(1.0), part(10.0)
    if way == "one function":

        @tf.function
        def step() -> None:
            step_one()
            step_two()
    elif way == "nested functions":
        first, second = tf.function(step_one), tf.function(step_two)

        @tf.function
        def step() -> None:
            first()
            second()
    else:
        first, second = tf.function(step_one), tf.function(step_two)

        def step() -> None:
            threads = [threading.Thread(target=run) for run in (first, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    for _ in range(STEPS):
        step()
    return [*one.get_weights(), *two.get_weights()]


@pytest.mark.parametrize(("wrapped", "way"), CASES)
@ranks(2, env=TENSORFLOW, hvd="paceline.keras")
def test_twins_are_kept_apart(rank: int, size: int, hvd: Any, wrapped: str, way: str) -> None:
    passes = 2 if wrapped == ADDING_UP else 1
    optimizer: Callable[[Any], Any] = lambda one: one  # noqa: E731
    tape: Callable[[Any], Any] = lambda one: one  # noqa: E731
    alone = _train(np.concatenate([_rows(other) for other in range(size)]), "one function", optimizer, tape)
    if wrapped == "tapes":
        tape = tape_hvd.DistributedGradientTape
    else:
        optimizer = lambda one: hvd.DistributedOptimizer(one, backward_passes_per_step=passes)  # noqa: E731
    mine = _train(_rows(rank), way, optimizer, tape)
    if passes == 1:
        for weights, expected in zip(mine, alone, strict=True):
            np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
    for weights, others in zip(mine, hvd.broadcast_object(mine, 0), strict=True):
        np.testing.assert_array_equal(weights, others)


@pytest.mark.parametrize("inside", [False, True], ids=["eager", "function"])
@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_jacobians_are_averaged_as_a_whole(rank: int, size: int, hvd: Any, inside: bool) -> None:
    one = tf.Variable([1.0, 2.0, 3.0])

    def run(factor: Any) -> Any:
        rows = tf.ones((4, 3)) * factor
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(rows)
            squares, products = one * one * factor, rows * rows * one
            total = tf.reduce_sum(squares)
        tape = hvd.DistributedGradientTape(tape)
        return tape.jacobian(squares, one), tape.batch_jacobian(products, rows), tape.gradient(total, one)

    squares, products, total = (tf.function(run) if inside else run)(tf.constant(rank + 1.0))
    mean = (size + 1) / 2
    np.testing.assert_allclose(squares, np.diag(2 * mean * one.numpy()))
    np.testing.assert_allclose(products, [np.diag(2 * mean * one.numpy())] * 4)
    np.testing.assert_allclose(total, 2 * mean * one.numpy())
