"""hvd.check_replicas: silent where weights are equal, else all ranks report the first difference."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import keras_ranks
from integration_tests.support.ranks import ranks
from paceline.errors import UserError


def _refused(check: Any, model: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        check(model)


@ranks(3, more=(2,), hvd="paceline.torch")
def test_pytorch(rank: int, size: int, hvd: Any) -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1).bfloat16())
    model.register_parameter("scale", torch.nn.Parameter(torch.tensor(2.0)))
    model[1].running_mean += rank
    hvd.check_replicas(model)
    if rank == size - 1:
        with torch.no_grad():
            model[2].bias += 1.0
    _refused(hvd.check_replicas, model, rf"1 of 7 weights, the first '2\.bias'.*on ranks {size - 1}\.")
    if rank == 1:
        model[0] = torch.nn.Linear(5, 3, bias=False)
    _refused(hvd.check_replicas, model, r"7 weights, found others on ranks 1\.")


@keras_ranks(2, hvd="paceline.keras")
def test_keras(rank: int, size: int, hvd: Any) -> None:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    hvd.check_replicas(model)
    if rank == 1:
        model.layers[1].kernel.assign(model.layers[1].kernel + 1e-6)
    _refused(hvd.check_replicas, model, r"1 of 4 weights, the first '.*kernel'.*on ranks 1\.")


@ranks(2, hvd="paceline.tensorflow")
def test_tensorflow(rank: int, size: int, hvd: Any) -> None:
    weights = [tf.Variable([1.0, 2.0], name="first"), tf.Variable(3.0, name="second")]
    hvd.check_replicas(weights)
    weights[1].assign_add(float(rank))
    _refused(hvd.check_replicas, weights, r"1 of 2 weights, the first 'second:0'.*on ranks 1\.")
