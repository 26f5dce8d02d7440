"""Ranks with unequally many batches in Model.fit: an epoch is that of one process with the batches of all."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.ranks.keras.test_weights import (
    _assert_equal,
    _data,
    _exchange,
    _in_float64,
    _net,
    _trained,
)
from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy, same_everywhere

COUNTS = (10, 7, 4)  # batches of a rank
ROWS = (6, 4, 5)
EPOCHS = 2


def _rows(rank: int, step: int) -> int:
    """Return the rows of a batch; the last of each rank has fewer."""
    return ROWS[rank] if step < COUNTS[rank] - 1 else 2 + rank


def _arrays(rank: int) -> tuple[Any, Any]:
    x, y = zip(*(_data(rank, step, _rows(rank, step)) for step in range(COUNTS[rank])), strict=True)
    return np.concatenate(x), np.concatenate(y)


class _Batches(keras.utils.PyDataset):
    def __init__(self, arrays: tuple[Any, ...], rows: int, **options: Any) -> None:
        super().__init__(**options)
        self._arrays, self._rows = arrays, rows

    def __len__(self) -> int:
        return -(-len(self._arrays[0]) // self._rows)

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        return tuple(one[number * self._rows : (number + 1) * self._rows] for one in self._arrays)


def _loader(arrays: tuple[Any, ...], rows: int) -> Any:
    import torch

    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*map(torch.from_numpy, arrays)), rows)


def _dataset(arrays: tuple[Any, ...], rows: int) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays).batch(rows)


def _native(arrays: tuple[Any, ...], rows: int) -> Any:
    """Return data of the kind that the backend has itself."""
    return (_dataset if keras.backend.backend() == "tensorflow" else _loader)(arrays, rows)


def _alone(size: int, late: int = 0, passes: int = 1) -> list[np.ndarray[Any, Any]]:
    """Return the weights of one process with what the ranks have in each step; gradients of `late` updates ago."""
    model, optimizer = _net(), keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    updates = [
        [
            _data(rank, step, _rows(rank, step))
            for step in range(first, first + passes)
            for rank in range(size)
            if step < COUNTS[rank]
        ]
        for first in range(0, max(COUNTS[:size]), passes)
    ]
    return _trained(model, optimizer, EPOCHS * updates, late)


def _wrapped(name: str, **options: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name=name, **{"weight": "samples", **options})


def _fit(model: Any, data: Any, **options: Any) -> Any:
    found = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0, **options)
    model.optimizer.drain()
    return found


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "partial", "local"])
@keras_ranks(2, more=(3,))
def test_as_one_process_with_all_batches(rank: int, size: int, exchange: str) -> None:
    def body(eagerly: bool, **options: Any) -> None:
        model = _net()
        wrapped = _wrapped(f"{exchange}_{eagerly}_{len(options)}", exchange=_exchange(exchange, size))
        model.compile(wrapped, "mse", run_eagerly=eagerly, **options)
        data = hvd.uneven(_native(_arrays(rank), ROWS[rank]))
        assert len(data) == COUNTS[0]
        steps: list[int] = []
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
        _fit(model, data, callbacks=[count])
        assert steps == [*range(COUNTS[0])] * EPOCHS
        _assert_equal(model, _alone(size, int(exchange == "pipelined")))

    for compiled in compiled_or_not():
        _in_float64(body, not compiled)


@keras_ranks(2, more=(3,))
def test_steps_of_one_call_and_passes(rank: int, size: int) -> None:
    def body(passes: int, **options: Any) -> None:
        model = _net()
        model.compile(_wrapped(f"passes_{passes}_{len(options)}", backward_passes_per_step=passes), "mse", **options)
        _fit(model, hvd.uneven(_native(_arrays(rank), ROWS[rank])))
        _assert_equal(model, _alone(size, passes=passes))

    _in_float64(body, 2)
    if keras.backend.backend() == "tensorflow":
        _in_float64(lambda: body(1, steps_per_execution=4))


@keras_ranks(2)
def test_epochs_of_some_steps_and_loss_scaling(rank: int, size: int) -> None:
    """Epochs that Keras ends before the data do go on where the last one ended."""

    def body(epochs: int, **options: Any) -> None:
        scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0)
        model = _net()
        model.compile(hvd.DistributedOptimizer(scaling, name=f"scaled_{epochs}", weight="samples"), "mse")
        data = hvd.uneven(_native(_arrays(rank), ROWS[rank]))
        model.fit(data, epochs=epochs, shuffle=False, verbose=0, **options)
        _assert_equal(model, _alone(size))

    _in_float64(body, 2)
    _in_float64(lambda: body(4, steps_per_epoch=5))


@keras_ranks(2)
def test_kinds_of_data(rank: int, size: int) -> None:
    arrays = _arrays(rank)
    made = [_Batches(arrays, ROWS[rank]), _loader(arrays, ROWS[rank])]
    if keras.backend.backend() == "tensorflow":  # Keras on PyTorch drops the first batch of several workers
        made.append(_Batches(arrays, ROWS[rank], workers=2))

    def body(data: Any) -> None:
        model = _net()
        model.compile(_wrapped("kinds"), "mse")
        _fit(model, hvd.uneven(data))
        _assert_equal(model, _alone(size))

    for one in made:
        _in_float64(body, one)


@pytest.mark.parametrize("exchange", ["majority", "local"])
@keras_ranks(3, more=(2,))
def test_replicas_are_equal_at_the_end(rank: int, size: int, exchange: str) -> None:
    def body() -> None:
        model = _net()
        chosen = hvd.Local(sync_every=3) if exchange == "local" else exchange
        model.compile(_wrapped(f"replicas_{exchange}", exchange=chosen), "mse")
        _fit(model, hvd.uneven(_native(_arrays(rank), ROWS[rank])))
        mine = [numpy(one) for one in model.trainable_variables]
        # Up to rounding: a rank that is late in partial rounds has the sum of several.
        for theirs in hvd.allgather_object(mine, name=f"replicas.{exchange}"):
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)

    _in_float64(body)


def _normalised() -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=1), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def _labelled(rank: int) -> tuple[Any, Any]:
    x, y = _arrays(rank)
    return x, (y[:, 0] > 0).astype("int64")


@keras_ranks(2)
def test_metrics_and_moving_averages_are_of_real_batches(rank: int, size: int) -> None:
    """Metrics and averages of a model with constant weights, fitted to this rank's batches; then over all ranks."""

    def body(eagerly: bool) -> None:
        found = []
        for wrapped in (True, False):
            model, optimizer = _normalised(), keras.optimizers.SGD(0.0)
            if wrapped:
                optimizer = hvd.DistributedOptimizer(optimizer, name=f"metrics_{eagerly}", weight="samples")
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss, metrics=["accuracy"], run_eagerly=eagerly)
            data = _native(_labelled(rank), ROWS[rank])
            history = _fit_plain(model, hvd.uneven(data) if wrapped else data)
            found.append((history, [numpy(one) for one in model.non_trainable_variables]))
        (history, variables), (expected, others) = found
        assert len(variables) > 2
        for name in ("loss", "accuracy"):
            np.testing.assert_allclose(history[name], expected[name], rtol=0, atol=1e-12)
        for one, other in zip(variables, others, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)

    for compiled in compiled_or_not():
        _in_float64(body, not compiled)


def _fit_plain(model: Any, data: Any) -> dict[str, list[float]]:
    history: dict[str, list[float]] = model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0).history
    return history


@keras_ranks(2)
def test_metrics_of_all_ranks_and_early_stopping(rank: int, size: int) -> None:
    def body() -> None:
        model, before = _net(), _net()
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0), name="early", weight="samples"), "mse")
        callbacks = [
            hvd.callbacks.MetricAverageCallback(weight="samples"),
            keras.callbacks.EarlyStopping("val_loss", patience=0),
        ]
        validation = _data(rank, 99, 3 + rank)
        data = hvd.uneven(_native(_arrays(rank), ROWS[rank]))
        history = model.fit(data, epochs=4, verbose=0, callbacks=callbacks, validation_data=validation).history
        before.compile("sgd", "mse")
        many = ([_arrays(one) for one in range(size)], [_data(one, 99, 3 + one) for one in range(size)])
        expected = [before.evaluate(*map(np.concatenate, zip(*one, strict=True)), verbose=0) for one in many]
        np.testing.assert_allclose([history["loss"], history["val_loss"]], [[one] * 2 for one in expected], rtol=1e-6)

    _in_float64(body)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
@keras_ranks(2)
def test_weights_of_samples_and_classes(rank: int, size: int, reduction: str) -> None:
    """A batch whose samples all have the weight 0 is one of the rank's own."""

    def body(of_classes: bool) -> None:
        weights = np.ones(len(_arrays(rank)[0])) + np.arange(len(_arrays(rank)[0])) % 3
        weights[: ROWS[rank]] = 0
        x, y = _labelled(rank)
        y[: ROWS[rank]] = 0
        given = (x, y) if of_classes else (x, y, weights)
        model = _net()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        model.compile(_wrapped(f"classes_{reduction}_{of_classes}"), loss, metrics=["accuracy"])
        data, chosen = _Batches(given, ROWS[rank]), {"class_weight": {0: 0.0, 1: 2.0}} if of_classes else {}
        history = _fit(model, hvd.uneven(data), **chosen).history
        assert np.isfinite(history["loss"]).all()
        # The same with the weight 0 set in the steps without data, on ranks with equally many batches.
        again = _net()
        variable = keras.Variable(0.0, trainable=False, dtype="float64")
        again.compile(_wrapped(f"again_{reduction}_{of_classes}", weight=variable), loss)
        sums = _weights_of(given, rank) if reduction == "mean_with_sample_weight" else None
        for _ in range(EPOCHS):
            for step in range(COUNTS[0]):
                number = min(step, COUNTS[rank] - 1)
                batch = data[number]
                if of_classes:
                    batch = (*batch, np.where(batch[1] == 0, 0.0, 2.0))
                rows = len(batch[0]) if sums is None else float(np.sum(batch[2]))
                variable.assign(rows if step == number else 0)
                again.train_on_batch(*batch)
        _assert_equal(model, [numpy(one) for one in again.trainable_variables])

    _in_float64(body, False)
    _in_float64(body, True)


def _weights_of(given: tuple[Any, ...], rank: int) -> Any:
    return given[2] if len(given) > 2 else np.where(given[1] == 0, 0.0, 2.0)


class Own(keras.Model):
    """A model with a custom train_step, which returns arbitrary values."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net()

    def call(self, x: Any, training: bool = False) -> Any:
        return self.net(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        return {"twice": 2 * super().train_step(data)["loss"]}


@keras_ranks(2)
def test_other_weights_and_train_steps(rank: int, size: int) -> None:
    """While a number is set, batches have equal weights; other data in between are trained as usual."""

    def body() -> None:
        model, weight = Own(), keras.Variable(1.0, trainable=False)
        model.compile(_wrapped("own"), "mse")
        data = hvd.uneven(_native(_arrays(rank), ROWS[rank]))
        _fit(model, data)
        _assert_equal(model, _alone(size))
        for one in (3, weight):
            model.optimizer.weight = one
            found = []
            for _ in range(2):  # before and after other data
                _reset(model)
                _fit(model, data)
                found.append([numpy(one) for one in model.trainable_variables])
                model.fit(*_data(rank, 0, 4), verbose=0)
            for first, second in zip(*found, strict=True):
                np.testing.assert_array_equal(first, second)
        same_everywhere(model.trainable_variables, "own")

    _in_float64(body)


def _reset(model: Any) -> None:
    for one, first in zip(model.trainable_variables, _net().trainable_variables, strict=True):
        one.assign(first)


@keras_ranks(2)
def test_a_masked_loss_of_nothing(rank: int, size: int) -> None:
    """A loss that is not a number in a step without data counts nothing."""

    def loss(y: Any, predicted: Any) -> Any:
        seen = keras.ops.cast(keras.ops.sum(keras.ops.abs(y)) > 0, predicted.dtype)
        return keras.ops.mean((predicted - y) ** 2, -1) * seen / seen

    def body() -> None:
        x, y = _arrays(rank)
        if rank:
            y[-_rows(rank, COUNTS[rank] - 1) :] = 0
        model = _net()
        model.compile(_wrapped("masked", weight=keras.Variable(1.0, trainable=False)), loss)
        last = COUNTS[rank] - 1
        zero = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: model.optimizer.weight.assign(float(not rank or batch != last))
        )
        _fit(model, hvd.uneven(_native((x, y), ROWS[rank])), callbacks=[zero])
        assert all(np.isfinite(numpy(one)).all() for one in model.trainable_variables)

    _in_float64(body)


@keras_ranks(2)
def test_refused(rank: int, size: int) -> None:
    """On all ranks, also where one rank alone has what cannot be used."""
    arrays = _arrays(rank)
    with pytest.raises(ValueError, match=r"expected a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader"):
        hvd.uneven(arrays[0])
    none = _Batches(tuple(one[: len(one) * (1 - rank)] for one in arrays), ROWS[rank])
    with pytest.raises(ValueError, match=r"found none on rank 1 and up to 10 on others(.|\n)*shard"):
        hvd.uneven(none)
    usable: Any = _Batches(arrays, ROWS[rank])
    words = "cannot use the data of rank 1, which reports why"
    if keras.backend.backend() == "tensorflow" and rank:
        usable, words = _native(arrays, ROWS[rank]).repeat(), r"Rank 1: (.|\n)*assert_cardinality"
    elif rank:
        usable, words = iter(arrays), "Rank 1: (.|\n)*found tuple_iterator"
    with pytest.raises(ValueError, match=words):
        hvd.uneven(usable)
    data = hvd.uneven(_Batches(arrays, ROWS[rank]))
    assert repr(data) == f"<uneven data: {COUNTS[rank]} batches in {COUNTS[0]} steps>"
    for optimizer, words in (
        (keras.optimizers.SGD(0.1), "expected a wrapped optimizer, found SGD"),
        (_wrapped("refused", weight=None), r"an optimizer with a weight(.|\n)*weight=\"samples\""),
    ):
        model = _net()
        model.compile(optimizer, "mse")
        with pytest.raises(ValueError, match=words):
            model.fit(data, verbose=0)


@keras_ranks(2)
def test_layers_and_tensors_that_are_refused(rank: int, size: int) -> None:
    if keras.backend.backend() != "tensorflow":
        return
    import horovod.tensorflow.keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((4,)), horovod.tensorflow.SyncBatchNormalization(), keras.layers.Dense(2)])
    model.compile(_wrapped("of_all"), "mse")
    with pytest.raises(ValueError, match="SyncBatchNormalization, whose"):
        model.fit(hvd.uneven(_native(_arrays(rank), ROWS[rank])), verbose=0)
    model = _net()
    model.compile(_wrapped("ragged"), "mse")
    rows = tf.ragged.constant([[1.0], [1.0, 2.0]][: 2 - rank])
    data = hvd.uneven(tf.data.Dataset.from_tensor_slices((rows, tf.zeros([2 - rank, 2]))).batch(1))
    if rank:
        with pytest.raises(ValueError, match="expected batches of dense tensors, found RaggedTensorSpec"):
            model.fit(data, verbose=0)
