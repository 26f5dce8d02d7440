"""PACELINE_CHECK_NUMERICS in Keras and TensorFlow: a NaN of one rank names rank, tensor and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from integration_tests.support.ranks import World

RAISE = {"PACELINE_CHECK_NUMERICS": "raise"}


def _raised(body: str, env: Mapping[str, str]) -> str:
    """Text of the error on rank 1 of 2; rank 0 may wait for it."""
    world = World(2, {**RAISE, **env})
    try:
        world.send(__name__, body, ())
        answers = world.answers(100, without=(0,))
    finally:
        world.end()
    assert answers[1][0] == "ok", answers
    return str(answers[1][1])


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
@pytest.mark.parametrize("exchange", ["sync", "pipelined", "majority"])
def test_keras(backend: str, exchange: str) -> None:
    text = _raised("_fit", {"KERAS_BACKEND": backend, "PACELINE_EXCHANGE": exchange})
    assert "rank 1 expected finite numbers" in text and "in step 3," in text, text


def _fit(rank: int, size: int) -> str:
    import keras
    import numpy as np

    import paceline.keras as hvd

    hvd.init()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="last")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    inputs = np.ones((12, 3), np.float32)
    if rank == 1:
        inputs[4:6] = np.nan
    try:
        model.fit(inputs, np.ones((12, 2), np.float32), batch_size=2, shuffle=False, verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def _tape(rank: int, size: int) -> str:
    import tensorflow as tf

    import paceline.tensorflow as hvd

    hvd.init()
    weight = tf.Variable(tf.ones((3, 2)))

    @tf.function
    def step(inputs: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(inputs @ weight)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
        weight.assign_sub(gradient)

    try:
        for number in range(1, 5):
            step(tf.fill((2, 3), float("nan") if number == 2 and rank == 1 else 1.0))
    except tf.errors.OpError as error:
        return str(error)
    return "nothing was raised"


def test_tapes() -> None:
    text = _raised("_tape", {})
    assert "rank 1 expected finite numbers, found 6 NaN" in text and "in step 2," in text, text
