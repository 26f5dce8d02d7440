"""Partial(sync_every=n): models of all ranks are averaged after n updates and after a drain, in all frameworks.

Averages change no mean over the ranks, so after a drain a model trained with plain SGD has all contributions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy, same_everywhere
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

STEPS = 22
TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}


def _slope(rank: int, step: int) -> float:
    return float(1 + 10 * rank + step)


def _moved(size: int) -> float:
    """Decrease of the weight with rate 1 and sums, after STEPS steps and a drain."""
    return sum(_slope(rank, step) for rank in range(size) for step in range(STEPS))


def _train(rank: int, size: int, update: Callable[[float], Any]) -> None:
    """Make STEPS updates, with one rank late in each."""
    for step in range(STEPS):
        if random.Random(step).randrange(size) == rank:
            time.sleep(0.01)
        update(_slope(rank, step))


@ranks(3, more=(2, 5), hvd="paceline.torch")
def test_torch(rank: int, size: int, hvd: Any) -> None:
    def optimizer_of(weight: Any, rate: float, name: str, every: int) -> tuple[Any, Any]:
        exchange = hvd.Partial("solo", sync_every=every)
        sgd = torch.optim.SGD([weight], lr=rate)
        optimizer = hvd.DistributedOptimizer(sgd, [(name, weight)], op=hvd.Sum, exchange=exchange)

        def update(slope: float) -> None:
            optimizer.zero_grad()
            (weight.sum() * slope).backward()
            optimizer.step()

        return optimizer, update

    weight = torch.nn.Parameter(torch.full((4,), float(rank)))
    optimizer, update = optimizer_of(weight, 0.0, "still", 5)
    for step in range(5):
        assert weight.tolist() == [float(rank)] * 4, step
        update(1.0)
    assert weight.tolist() == pytest.approx([(size - 1) / 2] * 4)
    optimizer.drain()
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer, update = optimizer_of(weight, 1.0, "moving", 4)
    _train(rank, size, update)
    optimizer.drain()
    assert weight.tolist() == pytest.approx([-_moved(size)] * 3)


@ranks(2, hvd="paceline.torch")
def test_torch_models_of_bfloat16_and_of_channels_last(rank: int, size: int, hvd: Any) -> None:
    """Means of bfloat16 are made in float32; memory stays laid out as it was."""
    image = torch.arange(2 * 3 * 5 * 7, dtype=torch.float32).reshape(2, 3, 5, 7) + 10 * rank
    weights = {
        "bfloat16": torch.nn.Parameter(torch.tensor([1.0 + rank, 256.0, 3.0]).to(torch.bfloat16)),
        "channels_last": torch.nn.Parameter(image.to(memory_format=torch.channels_last)),
        "both": torch.nn.Parameter((image % 50).to(torch.bfloat16).to(memory_format=torch.channels_last)),
    }
    expected = {"bfloat16": torch.tensor([1.5, 256.0, 3.0]), "channels_last": image - 10 * rank + 5}
    for name, weight in weights.items():
        sgd = torch.optim.SGD([weight], lr=0.0)
        exchange = hvd.Partial("solo", sync_every=1)
        optimizer = hvd.DistributedOptimizer(sgd, [(f"mean.{name}", weight)], exchange=exchange)
        strides = weight.stride()
        weight.sum().backward()
        optimizer.step()
        assert weight.stride() == strides
        if name in expected:
            assert torch.equal(weight.float(), expected[name])
        optimizer.drain()


def _keras_update(optimizer: Any, weights: list[Any], compiled: bool) -> Callable[[float], Any]:
    def update(slope: Any) -> None:
        optimizer.apply_gradients([(keras.ops.zeros(one.shape) + slope, one) for one in weights])

    if compiled:
        optimizer.build(weights)
        update = tf.function(update)
    return lambda slope: update(keras.ops.convert_to_tensor(np.float32(slope)))


def _keras(rank: int, size: int, hvd: Any, compiled: bool) -> None:
    def optimizer_of(rate: float, name: str, every: int) -> Any:
        exchange = hvd.Partial("solo", sync_every=every)
        return hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate), name=f"{name}{compiled}", op=hvd.Sum, exchange=exchange
        )

    # One of two variables stays on its rank.
    weights = [keras.Variable(np.full(shape, rank, np.float32)) for shape in ((2, 2), (3,))]
    optimizer = optimizer_of(0.0, "still", 5)
    optimizer.register_local_var(weights[1])
    update = _keras_update(optimizer, weights, compiled)
    for turn in range(2):
        for step in range(5):
            assert numpy(weights[0]).tolist() == [[rank, rank]] * 2, (turn, step)
            update(1.0)
        np.testing.assert_allclose(numpy(weights[0]), (size - 1) / 2, rtol=1e-6)
        assert numpy(weights[1]).tolist() == [rank] * 3
        weights[0].assign(np.full((2, 2), rank, np.float32))
    update(1.0)
    assert optimizer.drain() <= 1
    np.testing.assert_allclose(numpy(weights[0]), (size - 1) / 2, rtol=1e-6)
    # The count restarts after a drain.
    weights[0].assign(np.full((2, 2), rank, np.float32))
    for step in range(5):
        assert numpy(weights[0]).tolist() == [[rank, rank]] * 2, step
        update(1.0)
    np.testing.assert_allclose(numpy(weights[0]), (size - 1) / 2, rtol=1e-6)
    optimizer.drain()

    moving = [keras.Variable(np.zeros((3,), np.float32))]
    optimizer = optimizer_of(1.0, "moving", 4)
    _train(rank, size, _keras_update(optimizer, moving, compiled))
    optimizer.drain()
    np.testing.assert_allclose(numpy(moving[0]), -_moved(size), rtol=1e-5)
    same_everywhere(moving, f"moving{compiled}")


@keras_ranks(3, more=(2,), hvd="paceline.keras")
def test_keras(rank: int, size: int, hvd: Any) -> None:
    for compiled in compiled_or_not():
        _keras(rank, size, hvd, compiled)


@keras_ranks(3, more=(2,), hvd="paceline.keras")
def test_ranks_of_fit_have_one_model_after_every_average(rank: int, size: int, hvd: Any) -> None:
    """Even if they begin with different weights, and Adam keeps its own state."""
    keras.utils.set_random_seed(1 + rank)
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(5, "relu"), keras.layers.Dense(3)])
    exchange = hvd.Partial("majority", sync_every=4)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), name="fitted", exchange=exchange),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    generator = np.random.default_rng(rank)
    data = generator.normal(size=(64, 7)).astype(np.float32), generator.integers(0, 3, 64)
    model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0)
    same_everywhere(model.trainable_variables, "fitted.same")
    drain = hvd.callbacks.DrainCallback()
    model.fit(*data, batch_size=8, steps_per_epoch=5, epochs=1, shuffle=False, verbose=0, callbacks=[drain])
    same_everywhere(model.trainable_variables, "fitted.drained")


@keras_ranks(2, hvd="paceline.keras")
def test_variables_are_averaged(rank: int, size: int, hvd: Any) -> None:
    variables = [keras.Variable(np.full(shape, rank, dtype)) for shape, dtype in (((2,), "float32"), ((), "float64"))]
    for _ in range(2):
        hvd.average_variables(variables)
        for one in variables:
            np.testing.assert_allclose(numpy(one), (size - 1) / 2, rtol=1e-6)
            one.assign(np.full(one.shape, rank))
    with pytest.raises(ValueError, match=r"average_variables was given the variable .*int32.*\nGive variables"):
        hvd.average_variables([keras.Variable(np.zeros(2), dtype="int32", trainable=False)])


@ranks(3, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, hvd="paceline.tensorflow")
def test_process_set_with_the_id_of_a_removed_one(rank: int, size: int, hvd: Any) -> None:
    ids = set()
    for shape, members in enumerate(([0, 1], [1, 2]), start=1):
        process_set = hvd.add_process_set(members)
        ids.add(process_set.process_set_id)
        weight = tf.Variable([float(rank)] * shape)
        if rank in members:
            hvd.average_variables([weight], process_set=process_set)
            found = hvd.allreduce(weight, name="removed", process_set=process_set)
            assert weight.numpy().tolist() == found.numpy().tolist() == [sum(members) / 2] * shape
        hvd.remove_process_set(process_set)
    assert len(ids) == 1


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_tape_leaves_averaging_to_the_script(rank: int, size: int, hvd: Any) -> None:
    with tf.GradientTape() as tape:
        pass
    with pytest.raises(UserError, match=r"sync_every=3(?s:.)*hvd.average_variables"):
        hvd.DistributedGradientTape(tape, exchange=hvd.Partial(sync_every=3))
    weight = tf.Variable(tf.zeros([3]))
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build([weight])

    @tf.function
    def update(slope: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * slope)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, name="averaged", exchange="solo")
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        if optimizer.iterations % 4 == 0:
            hvd.average_variables([weight])

    _train(rank, size, lambda slope: update(tf.constant(slope)))
    hvd.drain_tape(optimizer, [weight], name="averaged")
    hvd.average_variables([weight])
    np.testing.assert_allclose(weight.numpy(), -_moved(size), rtol=1e-5)


@ranks(2, env=TENSORFLOW, fresh=True, hvd="paceline.keras")
def test_keras_drain_after_unequally_many_updates_is_an_error_on_all_ranks(rank: int, size: int, hvd: Any) -> None:
    weight, other = (keras.Variable(np.zeros(3, np.float32)) for _ in range(2))
    exchange = hvd.Partial("solo", sync_every=10)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="unequal.average", exchange=exchange)
    optimizer.build([weight, other])
    for _ in range(2 + rank):
        optimizer.apply_gradients([(keras.ops.ones(3), weight)])
    with pytest.raises(UserError, match=r"updates since the last drain.* from \[2\] to \[3\]"):
        optimizer.drain()
    with pytest.raises(UserError, match=r"2 variables have gradients, 1 had them"):
        optimizer.apply_gradients([(keras.ops.ones(3), weight), (keras.ops.ones(3), other)])
