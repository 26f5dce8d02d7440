"""The model of TensorFlow's multi-worker tutorial (examples/multiworker_keras.py) equals one process."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.keras_worlds import assert_near
from integration_tests.support.ranks import ranks


@pytest.mark.more
@ranks(2, 3, env={"KERAS_BACKEND": "tensorflow"})
def test_equals_one_process(rank: int, size: int) -> None:
    from paceline.examples import multiworker_keras as example

    keras.config.set_floatx("float64")
    try:
        keras.utils.set_random_seed(rank)  # ranks begin differently: rank 0's weights are broadcast
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
        of_ranks = example.train(rank, size, wrapped, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
        keras.utils.set_random_seed(0)
        alone = example.cnn(keras.optimizers.SGD(0.01))
        parts = [example.batches(other, size) for other in range(size)]
        split = (example.STEPS_PER_EPOCH, example.PER_RANK)
        x = np.concatenate([x.reshape(*split, 28, 28) for x, _ in parts], axis=1).reshape(-1, 28, 28)
        y = np.concatenate([y.reshape(split) for _, y in parts], axis=1).reshape(-1)
        alone.fit(x, y, batch_size=size * example.PER_RANK, epochs=example.EPOCHS, shuffle=False, verbose=0)
        assert alone.evaluate(x, y, verbose=0)[1] > 0.5, "it does not learn"
        assert_near(of_ranks.weights, alone.weights, rtol=0, atol=1e-13)
    finally:
        keras.config.set_floatx("float32")
