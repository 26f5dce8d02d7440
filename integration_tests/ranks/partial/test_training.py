"""Training with exchanges that do not wait: replicas trained with plain SGD are equal after a flush, in all frameworks.

Gradients are whole numbers that encode rank and step, so that sums are exact in any rounds.
"""

from __future__ import annotations

import random
import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy
from integration_tests.support.ranks import ranks, run_ranks

STEPS = 30
SHAPES = [(3,), (2, 5)]


def _slope(rank: int, step: int, place: int) -> float:
    return float(1 + place + 10 * rank + step)


def _expected(size: int, steps: int = STEPS) -> list[float]:
    """Decrease of every weight with rate 1 and sums."""
    return [sum(_slope(rank, step, place) for rank in range(size) for step in range(steps)) for place in range(2)]


def _pause(rank: int, step: int, size: int) -> None:
    """Delay one random rank in each step; all ranks take part in the first rounds."""
    if step > 1 and random.Random(step).randrange(size) == rank:
        time.sleep(0.02)


def _torch(rank: int, size: int, exchange: Any) -> Any:
    import paceline.torch as hvd

    hvd.init()
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    names = [(f"sgd.{exchange}.{n}", one) for n, one in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), names, op=hvd.Sum, exchange=exchange)
    with pytest.raises(hvd.UsageError, match="expected no gradients in flight"):
        optimizer.load_in_flight({"k": 2, "updates": 1, "in_flight": [({}, 1.0)]})
    for step in range(STEPS):
        _pause(rank, step, size)
        optimizer.zero_grad()
        for place, one in enumerate(weights):
            (one * _slope(rank, step, place)).sum().backward()
        optimizer.step()
    assert optimizer.drain() <= 1  # 0 if nothing was late
    for one, expected in zip(weights, _expected(size)):
        assert (-one).tolist() == np.full(one.shape, expected).tolist()
    return hvd.exchange_stats()


@pytest.mark.parametrize("exchange", ["majority", "solo"])
def test_replicas_are_equal_after_a_flush(exchange: str) -> None:
    for stats in run_ranks(_torch, 3, exchange):
        assert stats.rounds > 0 and stats.on_time + stats.late >= 2 * STEPS
        assert sum(stats.lags) == stats.on_time + stats.late
        assert "in time" in str(stats)


@ranks(3, more=(5,), hvd="paceline.torch")
def test_unequal_numbers_of_batches_need_no_join(rank: int, size: int, hvd: Any) -> None:
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    exchange = hvd.Partial("majority", max_lag=2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("unequal", weight)], op=hvd.Sum, exchange=exchange
    )
    batches = [4, 9, 6, 2, 7]
    for step in range(batches[rank]):
        optimizer.zero_grad()
        (weight * _slope(rank, step, 0)).sum().backward()
        optimizer.step()
    optimizer.drain()
    expected = sum(_slope(other, step, 0) for other in range(size) for step in range(batches[other]))
    assert weight.tolist() == [-expected] * 3


def _keras(rank: int, size: int, hvd: Any, compiled: bool) -> None:
    weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), name=f"partial{compiled}", op=hvd.Sum, exchange="majority"
    )

    def update(*slopes: Any) -> None:
        gradients = [keras.ops.zeros(shape) + slope for shape, slope in zip(SHAPES, slopes)]
        optimizer.apply_gradients(list(zip(gradients, weights)))

    if compiled:
        optimizer.build(weights)
        update = tf.function(update)
    for step in range(STEPS):
        _pause(rank, step, size)
        update(*(keras.ops.convert_to_tensor(np.float32(_slope(rank, step, place))) for place in range(2)))
    assert optimizer.drain() <= 1  # 0 if nothing was late
    for one, expected in zip(weights, _expected(size)):
        assert numpy(one).tolist() == np.full(one.shape, -expected).tolist()
    assert hvd.exchange_stats().rounds > 0


@keras_ranks(3, hvd="paceline.keras")
def test_replicas_of_keras_are_equal_after_a_flush(rank: int, size: int, hvd: Any) -> None:
    for compiled in compiled_or_not():
        _keras(rank, size, hvd, compiled)


@pytest.mark.more
@ranks(3, env={"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}, hvd="paceline.tensorflow")
def test_replicas_of_a_compiled_tape_are_equal_after_a_flush(rank: int, size: int, hvd: Any) -> None:
    weights = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(weights)

    @tf.function
    def update(*slopes: Any) -> None:
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(one * slope) for one, slope in zip(weights, slopes))
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, name="partial", exchange=hvd.Partial(2))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

    for step in range(STEPS):
        _pause(rank, step, size)
        update(*(tf.constant(_slope(rank, step, place)) for place in range(2)))
    assert hvd.drain_tape(optimizer, weights, name="partial") in (0, 1)  # a rank that was never late has none left
    for one, expected in zip(weights, _expected(size)):
        assert one.numpy().tolist() == np.full(one.shape, -expected).tolist()
