"""Horovod's own Keras and TensorFlow modules under Keras 3, in scripts without any call of Paceline.

Without the patch "keras3" gradients are not averaged at all (Keras 3 never calls what Horovod overrides), and
callbacks, elastic state, loading and batch normalisation raise.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

from integration_tests.support.ranks import ranks

# Every test here is a regression test of that patch.
pytestmark = pytest.mark.patch("keras3")

# A separate world: no other test has imported Paceline's adapters in it.
HOROVOD = {"KERAS_BACKEND": "tensorflow", "HOROVOD_LOG_LEVEL": "warning"}


def _same(values: list[Any], name: str) -> None:
    mine = [np.asarray(value) for value in values]
    for theirs in hvd.allgather_object(mine, name=name):
        for here, there in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("module", ["horovod.keras", "horovod.tensorflow.keras"])
@ranks(2, env=HOROVOD)
def test_unmodified_script(rank: int, size: int, module: str, tmp_path: Path) -> None:
    hvd = importlib.import_module(module)
    hvd.init()
    tf.keras.utils.set_random_seed(rank)
    x = np.random.default_rng(rank).normal(size=(24, 3)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dropout(0.2), tf.keras.layers.Dense(1)])
    # As Horovod's examples write it, with words that Keras 3 alone refuses.
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(lr=0.05, momentum=0.9))
    model.compile(optimizer, loss=tf.keras.losses.mean_squared_error, experimental_run_tf_function=False)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.05, warmup_epochs=2),
    ]
    path = tmp_path / f"{module}.keras"
    if rank == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(path)))
    history = model.fit(x, y, batch_size=6, epochs=3, verbose=0, callbacks=callbacks).history
    assert abs(float(model.optimizer.lr.numpy()) - 0.05) < 1e-6
    _same([*model.weights, *optimizer.variables()], f"{module}.same")
    _same([history["loss"]], f"{module}.loss")
    loaded = hvd.load_model(str(path))
    loaded.fit(x, y, batch_size=6, epochs=1, verbose=0)
    _same([*loaded.weights, *loaded.optimizer.variables], f"{module}.loaded")
    assert not {"paceline.keras", "paceline.tensorflow"} & set(sys.modules)


@ranks(2, env=HOROVOD)
def test_tape_with_explicit_groups_and_variables_of_one_name(rank: int, size: int) -> None:
    kernels = [tf.keras.Variable(np.full(2, float(place), np.float32), name="kernel") for place in range(3)]
    with tf.GradientTape() as tape:
        loss = (rank + 1.0) * tf.add_n([10.0**place * tf.reduce_sum(one) for place, one in enumerate(kernels)])
    tape = hvd.DistributedGradientTape(tape, groups=[[kernels[2], kernels[0]]])
    for place, grad in enumerate(tape.gradient(loss, kernels)):
        np.testing.assert_allclose(grad, np.full(2, 1.5 * 10.0**place))


@ranks(2, env=HOROVOD)
def test_elastic_state_and_broadcast(rank: int, size: int) -> None:
    tf.keras.utils.set_random_seed(10 + rank)
    layers = [tf.keras.layers.Input((2,)), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    optimizer = tf.optimizers.Adam(0.1 * (rank + 1))
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=rank)
    state.sync()
    assert state.batch == 0
    assert optimizer.built, "a rank that joins later would have more variables than the others"
    _same([*model.weights, *optimizer.variables], "elastic.synced")
    saved = [weight.numpy() for weight in model.weights]
    for weight in model.weights:
        weight.assign(weight + 1.0)
    optimizer.lr.assign(0.5)
    state.restore()
    np.testing.assert_allclose(optimizer.lr.numpy(), 0.1)
    for old, weight in zip(saved, model.weights, strict=True):
        np.testing.assert_array_equal(old, weight.numpy())
    # Each rank keeps the state of its random numbers: dropping the same units everywhere would waste the ranks.
    (seed,) = (variable for variable in model.variables if "seed" in variable.name)
    before = hvd.allgather_object(seed.numpy(), name="elastic.seeds")
    assert np.any(before[0] != before[1])
    hvd.broadcast_variables(model.variables, root_rank=1)
    np.testing.assert_array_equal(seed.numpy(), before[rank])


@ranks(2, env=HOROVOD)
def test_synchronous_batch_normalisation(rank: int, size: int) -> None:
    everything = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    whole, mine = tf.keras.layers.BatchNormalization(fused=False), hvd.SyncBatchNormalization()
    expected = whole(everything.reshape(10, 3), training=True).numpy().reshape(2, 5, 3)[rank]
    np.testing.assert_allclose(mine(everything[rank], training=True), expected, atol=1e-5)
    np.testing.assert_allclose(mine.moving_variance, whole.moving_variance, rtol=1e-5)
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(mine))
    assert type(copy) is type(mine)
    # Batches of different size, and two layers in one model: what one process finds in all rows.
    layers = tf.keras.layers
    rows = np.random.default_rng(1).normal(loc=3, size=(7, 3)).astype(np.float32)
    part = slice(0, 2) if rank == 0 else slice(2, 7)
    whole = tf.keras.Sequential([layers.BatchNormalization(fused=False) for _ in range(2)])
    mine = tf.keras.Sequential([hvd.SyncBatchNormalization() for _ in range(2)])
    np.testing.assert_allclose(mine(rows[part], training=True), whole(rows, training=True)[part], atol=1e-5)
    for here, there in zip(mine.variables, whole.variables, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)
