"""Weights of steps under Keras: accumulation, one process, local layers, weights set between steps."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.ranks.keras.test_weights import (
    LIMITS,
    ROWS,
    STEPS,
    _alone,
    _assert_equal,
    _data,
    _exchange,
    _gradients,
    _in_float64,
    _net,
    _share,
)
from integration_tests.support.keras_worlds import keras_ranks, numpy

RATE = 0.1


def _wrapped(name: str, **options: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), name=name, **options)


def _fit(model: Any, rank: int, **options: Any) -> None:
    model.fit(*_share(rank, ROWS[rank]), batch_size=ROWS[rank], shuffle=False, verbose=0, **options)


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "partial"])
@keras_ranks(2)
def test_means_of_several_passes_are_divided_once(rank: int, size: int, exchange: str) -> None:
    """average_aggregated_gradients changes nothing, in updates and in a drain."""

    def body() -> None:
        model, options = _net(), {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
        model.compile(_wrapped("once", weight="samples", exchange=_exchange(exchange, size), **options), "mse")
        _fit(model, rank)
        model.optimizer.drain()
        _assert_equal(model, _alone(size, int(exchange == "pipelined"), passes=2))

    _in_float64(body)


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "partial"])
@keras_ranks(1)
def test_one_process_is_as_without_weights(rank: int, size: int, exchange: str) -> None:
    def body() -> None:
        model = _net()
        model.compile(_wrapped("single", weight="samples", exchange=_exchange(exchange, size)), "mse")
        _fit(model, rank)
        _assert_equal(model, _alone(size, 0))

    _in_float64(body)


@keras_ranks(2)
def test_losses_without_a_divisor_in_common(rank: int, size: int) -> None:
    x, (y, other) = _data(rank, 0, 3)[0], (_data(rank, step, 3)[1] for step in (0, 1))
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
    losses = [keras.losses.MeanSquaredError(reduction="mean_with_sample_weight") for _ in range(2)]
    model.compile(_wrapped("common", weight="samples"), losses)
    with pytest.raises(ValueError, match=r"weight=.samples. was given for losses that are"):
        model.fit(x, [y, other], sample_weight=[np.ones(3), np.arange(3.0)], batch_size=3, verbose=0)


class _Own(keras.Model):
    """A model with a custom train_step, which does not update Keras' metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _net()

    def call(self, x: Any, training: bool = False) -> Any:
        return self.net(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.optimizer.apply(_gradients(self.net, x, y), self.trainable_variables)
        return {"one": keras.ops.ones(())}


@keras_ranks(2)
def test_metrics_of_a_model_that_counts_no_samples(rank: int, size: int) -> None:
    def body() -> None:
        model = _Own()
        model.compile(_wrapped("uncounted"), "mse")
        with pytest.raises(ValueError, match="no samples on any rank"):
            _fit(model, rank, callbacks=[hvd.callbacks.MetricAverageCallback(weight="samples")])

    _in_float64(body)


@keras_ranks(2)
def test_weights_set_between_compiled_steps(rank: int, size: int) -> None:
    """A variable is not taken for one of the optimizer's, which are saved, and broadcast from one rank."""

    def body() -> None:
        model, variable = _net(), keras.Variable(float(ROWS[rank]), trainable=False)
        model.compile(_wrapped("between"), "mse")
        model.train_on_batch(*_data(rank, 0, 4))  # compiled without weights
        count = len(model.optimizer.variables)
        for one, first in zip(model.trainable_variables, _net().trainable_variables, strict=True):
            one.assign(first)
        for step, weight in enumerate((ROWS[rank], "samples", variable, variable.value, float(ROWS[rank]))):
            model.optimizer.weight = weight
            model.train_on_batch(*_data(rank, step, ROWS[rank]))
        assert step == STEPS - 1
        _assert_equal(model, _alone(size, 0))
        assert len(model.optimizer.variables) == count

    _in_float64(body)


@keras_ranks(2)
def test_weights_under_loss_scaling(rank: int, size: int) -> None:
    def body() -> None:
        model, variable = _net(), keras.Variable(float(ROWS[rank]), trainable=False)
        scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=4.0)
        model.compile(hvd.DistributedOptimizer(scaling, name="scaled"), "mse")
        count = len(model.optimizer.variables)
        model.optimizer.weight = variable
        assert len(model.optimizer.variables) == count
        model.optimizer.weight = "samples"
        assert model.optimizer.weight == "samples"
        _fit(model, rank)
        _assert_equal(model, _alone(size, 0))

    _in_float64(body)


@keras_ranks(2)
def test_gradients_that_stay_on_their_rank(rank: int, size: int) -> None:
    """They are means over the passes of their rank; at the weight 0 they count nothing."""

    def body() -> None:
        model = _net()
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(1.0), name="stay", local_layers=[model.layers[0]], backward_passes_per_step=2
        )
        optimizer.build(model.trainable_variables)
        before = numpy(model.trainable_variables[0])
        grads = [[numpy(one) for one in _gradients(model, *_data(rank, step, 3))] for step in range(3)]
        grads[2] = [one * np.nan for one in grads[2]]
        for weight, many in zip((1, 3, 0, 0), (*grads, grads[2]), strict=True):
            optimizer.weight = weight
            optimizer.apply([keras.ops.convert_to_tensor(one) for one in many], model.trainable_variables)
        expected = before - (grads[0][0] + 3 * grads[1][0]) / 4 / size
        found = numpy(model.trainable_variables[0])
        np.testing.assert_allclose(found, expected, rtol=0, atol=LIMITS[keras.backend.backend()])

    _in_float64(body)


@keras_ranks(2)
def test_what_is_no_weight(rank: int, size: int) -> None:
    optimizer = _wrapped("none")
    for weight in (np.float32(-1), float("inf"), [1, 2], np.ones(2), keras.ops.ones(2)):
        with pytest.raises(ValueError, match="finite number >= 0"):
            optimizer.weight = weight
    model = _net()
    optimizer.build(model.trainable_variables)
    optimizer.weight = keras.Variable(-2.0, trainable=False)
    with pytest.raises(Exception, match=rf"Rank {rank}: weight(.|\n)*-2.0(.|\n)*finite number >= 0"):
        optimizer.apply([keras.ops.ones(one.shape) for one in model.trainable_variables], model.trainable_variables)
