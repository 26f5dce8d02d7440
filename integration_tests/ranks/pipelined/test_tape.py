"""Pipelined exchange of the gradients of TensorFlow's tapes, eagerly and in tf.function."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.tensorflow as hvd
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}


def _quadratic(inside: bool, exchange: Any, steps: int, name: str, rate: float = 0.1) -> tuple[list[float], Any]:
    w = tf.Variable([1.0], dtype=tf.float64)
    optimizer = keras.optimizers.SGD(rate)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w**2 / 2)
        tape = hvd.DistributedGradientTape(tape, name=name, exchange=exchange)
        # Clipping makes new tensors; the update is left out all the same.
        gradients = [tf.clip_by_value(one, -9.0, 9.0) for one in tape.gradient(loss, [w])]
        optimizer.apply_gradients(zip(gradients, [w], strict=True))

    run = tf.function(step) if inside else step
    values = []
    for _ in range(steps):
        values.append(float(w[0]))
        run()
    updates = int(optimizer.iterations)
    late = hvd.drain_tape(optimizer, [w], name=name)
    assert int(optimizer.iterations) == updates + late
    return values, updates


@ranks(3, more=(2, 4), env=TENSORFLOW)
def test_quadratic_goes_as_the_paper_says(rank: int, size: int) -> None:
    for inside in (False, True):
        values, updates = _quadratic(inside, "pipelined", 6, f"two{inside}")
        assert values == pytest.approx([1, 1, 0.9, 0.8, 0.71, 0.63], rel=1e-6) and updates == 5
        values, updates = _quadratic(inside, "sync", 4, f"one{inside}")
        assert values == pytest.approx([1, 0.9, 0.81, 0.729], rel=1e-6) and updates == 4
        values, updates = _quadratic(inside, hvd.Pipelined(k=2, warmup_steps=2), 6, f"warm{inside}")
        assert values == pytest.approx([1, 0.9, 0.81, 0.81, 0.729, 0.648], rel=1e-6) and updates == 5


@ranks(2, more=(3,), env=TENSORFLOW)
def test_steps_that_are_unrolled_in_one_graph_are_one_pipeline(rank: int, size: int) -> None:
    def run(name: str, unrolled: int, calls: int) -> Any:
        weight = tf.Variable([1.0, 2.0], dtype=tf.float64)
        optimizer = keras.optimizers.Adam(0.1)

        @tf.function
        def steps(batch: Any) -> None:
            for number in range(unrolled):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.sin(weight * (batch + number)) * (rank + 1))
                tape = hvd.DistributedGradientTape(tape, name=name, exchange="pipelined")
                optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))

        for call in range(calls):
            steps(tf.constant(float(call * unrolled), tf.float64))
        assert hvd.drain_tape(optimizer, [weight], name=name) == 1
        assert int(optimizer.iterations) == unrolled * calls
        return weight.numpy()

    alone = run("alone", 1, 12)
    for unrolled in (2, 3):
        np.testing.assert_allclose(run(f"unrolled{unrolled}", unrolled, 12 // unrolled), alone, rtol=1e-12)


@ranks(2, env=TENSORFLOW)
def test_resumed_run_goes_on_bit_for_bit(rank: int, size: int) -> None:
    def run(name: str, start: Any, first: int, last: int) -> Any:
        weight = tf.Variable(start)

        @tf.function
        def step(number: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(weight * (number + rank)))
            tape = hvd.DistributedGradientTape(tape, name=name, exchange=hvd.Pipelined(k=3))
            (gradient,) = tape.gradient(loss, [weight])
            if tape.answered:
                weight.assign_sub(0.1 * gradient)

        for number in range(first, last):
            step(tf.constant(float(number)))
        return weight

    start = np.linspace(0, 1, 7, dtype=np.float32)
    whole = run("whole", start, 0, 12)
    half = run("half", start, 0, 5)
    hvd.load_tape_in_flight(hvd.tape_in_flight("half"), "rest")
    np.testing.assert_array_equal(run("rest", half, 5, 12).numpy(), whole.numpy())


@ranks(2, env=TENSORFLOW)
def test_indexed_slices(rank: int, size: int) -> None:
    table = tf.Variable(tf.zeros([6, 2]))
    optimizer = keras.optimizers.SGD(1.0)

    @tf.function
    def step(row: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, row))
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, name="sparse", exchange="pipelined")
        optimizer.apply_gradients(zip(tape.gradient(loss, [table]), [table], strict=True))

    expected = np.zeros((6, 2), np.float32)
    for number in range(5):
        step(tf.constant([(number + rank) % 6]))
        if number:
            for other in range(size):
                expected[(number - 1 + other) % 6] -= 1
        np.testing.assert_array_equal(table.numpy(), expected)
    assert hvd.drain_tape(optimizer, [table], name="sparse") == 1


@ranks(2, env=TENSORFLOW)
def test_loss_scaling_whose_factor_changes(rank: int, size: int) -> None:
    def run(scaled: bool, inside: bool, exchange: Any, name: str) -> Any:
        weight = tf.Variable(np.linspace(1, 2, 7))
        optimizer: Any = keras.optimizers.SGD(0.1)
        if scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=3)

        def step() -> None:
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(tf.reduce_sum(weight**2) * (rank + 1))
            tape = hvd.DistributedGradientTape(tape, name=name, exchange=exchange)
            optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))

        turn = tf.function(step) if inside else step
        for _ in range(10):
            turn()
        assert hvd.drain_tape(optimizer, [weight], name=name) == 2
        return weight.numpy()

    for inside in (False, True):
        plain, scaled = (run(one, inside, hvd.Pipelined(k=3), f"scaled{one}{inside}") for one in (False, True))
        np.testing.assert_allclose(scaled, plain, rtol=1e-6)
    with pytest.raises(UserError, match="scales its loss"):
        run(True, False, "solo", "refused")


@ranks(2, env=TENSORFLOW)
def test_dropped_batches_keep_the_scale_of_their_loss(rank: int, size: int) -> None:
    for k in (2, 3):
        variable = tf.Variable(tf.zeros(3))
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), 4.0, dynamic_growth_steps=1)
        optimizer.build([variable])
        name, exchange = f"dropped{k}", hvd.Pipelined(k=k)

        @tf.function
        def step(
            factor: Any, drop: Any, of: Any = variable, by: Any = optimizer, name: str = name, exchange: Any = exchange
        ) -> None:
            with tf.GradientTape() as tape:
                loss = by.scale_loss(tf.reduce_sum(of * factor))
            gradients = hvd.DistributedGradientTape(tape, name=name, exchange=exchange).gradient(loss, [of])

            def update() -> Any:
                by.apply(gradients, [of])
                return tf.constant(0)

            tf.cond(drop, lambda: tf.constant(0), update)

        steps = 8
        for number in range(steps):  # the result of this step is dropped
            step(tf.constant(2.0**number), tf.constant(number == 4))
        hvd.drain_tape(optimizer, [variable], name=name)
        wanted = 2**steps - 1 - 2 ** (4 - (k - 1))
        assert variable.numpy().tolist() == [-wanted] * 3, (k, variable.numpy(), wanted)
