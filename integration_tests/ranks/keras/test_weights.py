"""Weighted means under Keras: ranks with unequal batches are what one process with all samples is."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy
from integration_tests.support.ranks import run_ranks

# Keras on PyTorch computes means over samples in float32, whatever the type of the loss.
LIMITS = {"tensorflow": 1e-12, "torch": 1e-7}
STEPS = 5
ROWS = (24, 8, 5)
EXCHANGES = ("sync", "pipelined", "partial", "local")


def _in_float64(body: Any, *args: Any) -> None:
    usual, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        body(*args)
    finally:
        keras.config.set_floatx(usual)
        keras.config.set_dtype_policy(policy)


def _net() -> Any:
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(2)])


def _data(rank: int, step: int, rows: int) -> tuple[Any, Any]:
    data = np.random.default_rng(100 * step + rank)
    return data.normal(size=(rows, 4)), data.normal(size=(rows, 2))


def _share(rank: int, rows: int) -> tuple[Any, Any]:
    """Return the data of a rank for fit: STEPS batches of `rows` rows."""
    x, y = zip(*(_data(rank, step, rows) for step in range(STEPS)), strict=True)
    return np.concatenate(x), np.concatenate(y)


def _alone(size: int, late: int, passes: int = 1) -> list[np.ndarray[Any, Any]]:
    """The weights of one process that has the batches of all ranks; gradients of `late` updates ago."""
    model = _net()
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    firsts = range(0, STEPS - STEPS % passes, passes)
    updates = [
        [_data(rank, step, ROWS[rank]) for step in range(first, first + passes) for rank in range(size)]
        for first in firsts
    ]
    return _trained(model, model.optimizer, updates, late)


def _trained(model: Any, optimizer: Any, updates: list[list[tuple[Any, Any]]], late: int) -> list[np.ndarray[Any, Any]]:
    """Return the weights after updates with these batches together, whose gradients are used `late` updates later."""
    waiting = []
    for parts in updates:
        x, y = (np.concatenate(many) for many in zip(*parts, strict=True))
        waiting.append(_gradients(model, x, y))
        if len(waiting) > late:
            optimizer.apply(waiting.pop(0), model.trainable_variables)
    for one in waiting:
        optimizer.apply(one, model.trainable_variables)
    return [numpy(one) for one in model.trainable_variables]


def _gradients(model: Any, x: Any, y: Any) -> list[Any]:
    x, y = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = keras.ops.mean((model(x, training=True) - y) ** 2)
        return list(tape.gradient(loss, model.trainable_variables))
    model.zero_grad()
    keras.ops.mean((model(x, training=True) - y) ** 2).backward()
    return [one.value.grad for one in model.trainable_variables]


def _exchange(name: str, size: int) -> Any:
    chosen = {"partial": hvd.Partial(quorum=size), "local": hvd.Local(sync_every=1)}
    return chosen.get(name, name)


def _assert_equal(model: Any, expected: list[np.ndarray[Any, Any]]) -> None:
    for one, other in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(numpy(one), other, rtol=0, atol=LIMITS[keras.backend.backend()])


def _fits(size: int, rank: int, exchange: str, eagerly: bool, passes: int, executions: int) -> None:
    model = _net()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), name=f"fit_{exchange}_{eagerly}_{passes}_{executions}", weight="samples",
        exchange=_exchange(exchange, size), backward_passes_per_step=passes,
    )  # fmt: skip
    model.compile(optimizer, "mse", run_eagerly=eagerly, steps_per_execution=executions)
    model.fit(*_share(rank, ROWS[rank]), batch_size=ROWS[rank], shuffle=False, verbose=0)
    model.optimizer.drain()
    _assert_equal(model, _alone(size, int(exchange == "pipelined"), passes=passes))


@pytest.mark.parametrize("exchange", EXCHANGES)
@keras_ranks(2, more=(3,))
def test_fit_weighs_by_samples(rank: int, size: int, exchange: str) -> None:
    for compiled in compiled_or_not():
        _in_float64(_fits, size, rank, exchange, not compiled, 1, 1)


@keras_ranks(2)
def test_passes_and_several_steps_of_one_call(rank: int, size: int) -> None:
    for compiled in compiled_or_not():
        _in_float64(_fits, size, rank, "sync", not compiled, 2, 1)
    if keras.backend.backend() == "tensorflow":
        _in_float64(_fits, size, rank, "sync", False, 1, 2)


def _unmodified(rank: int, size: int) -> str:
    """A script that does not use weights."""
    hvd.init()
    keras.config.set_floatx("float64")
    model = _net()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(*_share(rank, ROWS[rank]), batch_size=ROWS[rank], shuffle=False, verbose=0)
    _assert_equal(model, _alone(size, 0))
    return str(model.optimizer.weight)


def test_a_variable_of_the_environment() -> None:
    env = {"KERAS_BACKEND": "tensorflow", "PACELINE_WEIGHT": "samples"}
    assert run_ranks(_unmodified, 2, env=env, fresh=True) == ["samples"] * 2


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
@keras_ranks(2)
def test_weights_of_samples(rank: int, size: int, reduction: str) -> None:
    """One batch of each rank, against one process with both, by Keras' own rule."""

    def body() -> None:
        shares = [(*_data(one, 0, ROWS[one]), 1.0 + np.arange(ROWS[one]) % 3) for one in range(size)]
        models = []
        for wrapped in (True, False):
            x, y, weights = shares[rank] if wrapped else map(np.concatenate, zip(*shares, strict=True))
            model, optimizer = _net(), keras.optimizers.SGD(0.1)
            if wrapped:
                optimizer = hvd.DistributedOptimizer(optimizer, name=f"of_samples_{reduction}", weight="samples")
            model.compile(optimizer, keras.losses.MeanSquaredError(reduction=reduction))
            model.fit(x, y, batch_size=len(x), sample_weight=weights, shuffle=False, verbose=0)
            models.append(model)
        _assert_equal(models[0], [numpy(one) for one in models[1].trainable_variables])

    _in_float64(body)


@pytest.mark.parametrize("exchange", EXCHANGES)
@keras_ranks(2, more=(3,))
def test_a_variable_and_a_rank_without_data(rank: int, size: int, exchange: str) -> None:
    """A gradient of NaN of a rank with the weight 0 counts nothing."""

    def body() -> None:
        model, weight = _net(), keras.Variable(1.0, trainable=False)
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.1), name=f"variable_{exchange}", weight=weight, exchange=_exchange(exchange, size)
        )
        optimizer.build(model.trainable_variables)
        without = 1
        for step in range(STEPS):
            grads = _gradients(model, *_data(rank, step, 6))
            weight.assign(0.0 if rank == without else 6.0)
            if rank == without:
                grads = [grad * float("nan") for grad in grads]
            optimizer.apply(grads, model.trainable_variables)
        optimizer.drain()
        alone, waiting = _net(), []
        plain = keras.optimizers.SGD(0.1)
        plain.build(alone.trainable_variables)
        for step in range(STEPS):
            parts = [_data(one, step, 6) for one in range(size) if one != without]
            x, y = (np.concatenate(many) for many in zip(*parts, strict=True))
            waiting.append(_gradients(alone, x, y))
            if len(waiting) > (exchange == "pipelined"):
                plain.apply(waiting.pop(0), alone.trainable_variables)
        for one in waiting:
            plain.apply(one, alone.trainable_variables)
        _assert_equal(model, [numpy(one) for one in alone.trainable_variables])

    _in_float64(body)


@keras_ranks(2)
def test_a_number_holds_in_steps_that_are_compiled(rank: int, size: int) -> None:
    """Numbers, then "samples", then none at all: each set between calls of fit."""

    def body() -> None:
        inputs = np.ones((4, 1))
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), name="numbers", weight=1 + 2 * rank)
        model.compile(optimizer, "mse")
        found = []
        for weight in (1 + 2 * rank, 3 - 2 * rank, np.int64(rank), "samples", None):
            model.optimizer.weight = weight
            model.layers[0].kernel.assign([[0.0]])
            rows = 1 + 2 * rank
            model.fit(inputs[:rows], np.full((rows, 1), float(rank)), batch_size=rows, verbose=0)
            found.append(float(numpy(model.layers[0].kernel)[0, 0]))
        np.testing.assert_allclose(found, [3 / 4, 1 / 4, 1.0, 3 / 4, 1 / 2], atol=1e-7)

    _in_float64(body)


@keras_ranks(2)
def test_refused(rank: int, size: int) -> None:
    def wrapped(**options: Any) -> Any:
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)
        optimizer.build(_net().trainable_variables)
        return optimizer.weight

    for options, words in (
        ({"op": hvd.Sum, "weight": 1}, "op other than Average"),
        ({"compression": hvd.Compression.fp16, "weight": 1}, "compression="),
        ({"codec": "q8", "weight": 1}, "a codec"),
        ({"weight": -1}, "finite number >= 0"),
        ({"weight": "rows"}, "'samples', a number or a variable"),
    ):
        with pytest.raises(ValueError, match=words):
            wrapped(**options)
    model = _net()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="summed", weight="samples")
    model.compile(optimizer, keras.losses.MeanSquaredError(reduction="sum"))
    with pytest.raises(ValueError, match="which is not a mean"):
        model.fit(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
    model = _net()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="elsewhere", weight="samples")
    optimizer.build(model.trainable_variables)
    with pytest.raises(ValueError, match=r"train_step of Keras(.|\n)*a variable that holds the number"):
        optimizer.apply([keras.ops.ones(one.shape) for one in model.trainable_variables], model.trainable_variables)


@keras_ranks(2, more=(3,))
def test_metrics_by_samples(rank: int, size: int) -> None:
    """Means of an epoch equal one process with all samples; early stopping gets the same value on all ranks."""

    class Kept(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            kept.append(dict(logs or {}))

    kept: list[dict[str, Any]] = []
    model = _net()
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
    callbacks = [
        hvd.callbacks.MetricAverageCallback(weight="samples"),
        Kept(),
        keras.callbacks.EarlyStopping("val_loss", patience=0),
    ]
    rows, validated = ROWS[rank] * STEPS, 2 + 3 * rank
    model.fit(
        *_share(rank, ROWS[rank]), batch_size=7, epochs=3, verbose=0, callbacks=callbacks,
        validation_data=_data(rank, 99, validated),
    )  # fmt: skip
    alone = _net()
    alone.compile("sgd", "mse", metrics=["mae"])
    shares = [_share(one, ROWS[one]) for one in range(size)], [_data(one, 99, 2 + 3 * one) for one in range(size)]
    expected = [
        alone.evaluate(*map(np.concatenate, zip(*many, strict=True)), verbose=0, batch_size=1000) for many in shares
    ]
    assert len(shares[0][rank][0]) == rows
    found = [[kept[0][prefix + name] for name in ("loss", "mae")] for prefix in ("", "val_")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(kept) == 2, "the second epoch is no better"
    with pytest.raises(ValueError, match="None or 'samples'"):
        hvd.callbacks.MetricAverageCallback(weight="rows")


@keras_ranks(2)
def test_means(rank: int, size: int) -> None:
    assert hvd.mean(float(rank), rank + 1) == pytest.approx(2 / 3, abs=1e-15)
    assert hvd.mean(float("nan") if rank else 3.0, 1 - rank) == 3.0
    np.testing.assert_allclose(hvd.mean(np.array([1.0, rank]), ROWS[rank]), [1.0, 8 / 32])
    with pytest.raises(ValueError, match="finite number >= 0"):
        hvd.mean(1.0, -1)
