"""Compensation of staleness leaves frozen weights where they are, and loses no update."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import keras_ranks, numpy
from integration_tests.support.ranks import ranks

CORRECTION = 0.1


@keras_ranks(2, hvd="paceline.keras")
def test_frozen_variables_stay(rank: int, size: int, hvd: Any) -> None:
    for k in (2, 3):
        weights = [keras.Variable(np.zeros(3, np.float32), name=f"frozen{k}{n}") for n in range(2)]
        exchange = hvd.Pipelined(k=k, correction=CORRECTION)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name=f"frozen{k}", exchange=exchange)
        optimizer.build(weights)

        def step_of(variables: list[Any], optimizer: Any = optimizer) -> Any:
            def step() -> None:
                optimizer.apply([keras.ops.full((3,), rank + 1.0) for _ in variables], variables)

            if keras.backend.backend() != "tensorflow":
                return step

            return tf.function(step, autograph=False)

        both, first_alone = step_of(weights), step_of(weights[:1])
        for _ in range(5):
            both()
        assert optimizer.drain() == k - 1
        frozen = numpy(weights[1])
        np.testing.assert_allclose(frozen, [-5 * (size + 1) / 2] * 3)
        for _ in range(4):
            first_alone()
            with optimizer.real_weights():
                np.testing.assert_array_equal(numpy(weights[1]), frozen)
            np.testing.assert_array_equal(numpy(weights[1]), frozen, err_msg=f"k={k}, after real_weights()")
        optimizer.drain()
        np.testing.assert_array_equal(numpy(weights[1]), frozen)
        np.testing.assert_allclose(numpy(weights[0]), [-9 * (size + 1) / 2] * 3)


@ranks(2, hvd="paceline.torch")
def test_frozen_parameters_stay(rank: int, size: int, hvd: Any) -> None:
    for drained in (False, True):
        weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
        held = torch.optim.SGD(weights, lr=1.0)
        named = [(f"stay.{drained}.{n}", weight) for n, weight in enumerate(weights)]
        optimizer = hvd.DistributedOptimizer(held, named, exchange=hvd.Pipelined(correction=CORRECTION))

        def step(optimizer: Any = optimizer, weights: Any = weights) -> None:
            optimizer.zero_grad()
            sum((weight * (rank + 1.0)).sum() for weight in weights if weight.requires_grad).backward()
            optimizer.step()

        for _ in range(5):
            step()
        with optimizer.real_weights():
            frozen = weights[1].detach().clone()
        if drained:
            optimizer.drain()
            frozen = weights[1].detach().clone()
        weights[1].requires_grad_(False)
        for _ in range(4):
            step()
            torch.testing.assert_close(weights[1].detach(), frozen, rtol=0, atol=0)
            with optimizer.real_weights():
                torch.testing.assert_close(weights[1].detach(), frozen, rtol=0, atol=0)
            torch.testing.assert_close(weights[1].detach(), frozen, rtol=0, atol=0)
        optimizer.drain()
        torch.testing.assert_close(weights[1].detach(), frozen, rtol=0, atol=0)


@keras_ranks(2, hvd="paceline.keras")
def test_constant_gradients_are_all_applied(rank: int, size: int, hvd: Any) -> None:
    """The trend becomes the change itself: the updated weight has the value that was expected."""
    weight = keras.Variable(np.zeros(3, np.float32))
    exchange = hvd.Pipelined(correction=CORRECTION)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="constant", exchange=exchange)
    for _ in range(30):
        optimizer.apply([keras.ops.full((3,), 1.0)], [weight])
    optimizer.drain()
    np.testing.assert_array_equal(numpy(weight), [-30.0] * 3)
