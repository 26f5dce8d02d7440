"""Help against stale gradients for Keras, on TensorFlow and on PyTorch, eagerly and compiled."""

from __future__ import annotations

import pickle
from typing import Any

import keras
import numpy as np
import pytest

from integration_tests.support.keras_worlds import keras_ranks, numpy, same_everywhere
from integration_tests.support.staleness import CASES, CURVATURE, reference
from paceline.errors import UserError


def _close(found: Any, expected: Any, where: Any = "") -> None:
    np.testing.assert_allclose(numpy(found), expected, rtol=2e-5, atol=1e-6, err_msg=str(where))


def _model(alpha: float, momentum: float, exchange: Any, name: str, compiled: bool = False) -> Any:
    """One weight for each curvature, all 1; the loss is sum(CURVATURE w^2) / 2 whatever the input is."""
    import paceline.keras as hvd

    class Valley(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.w = self.add_weight(shape=(3,), initializer="ones", name="w")

        def call(self, x: Any) -> Any:
            return keras.ops.sum(keras.ops.convert_to_tensor(CURVATURE.astype("float32")) * self.w**2) / 2 + 0 * x

    model = Valley()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(alpha, momentum), name=name, exchange=exchange)
    model.compile(optimizer=optimizer, loss=lambda y, found: keras.ops.mean(found), run_eagerly=not compiled)
    return model


def _step(model: Any, steps: int = 1) -> None:
    for _ in range(steps):
        model.train_on_batch(np.zeros((2, 1), np.float32), np.zeros((2, 1), np.float32))


@pytest.mark.parametrize("compiled", [False, True])
@keras_ranks(2, hvd="paceline.keras")
def test_updates_are_those_of_the_formulas(rank: int, size: int, hvd: Any, compiled: bool) -> None:
    for number, (k, alpha, momentum, anneal, correction, warmup) in enumerate(CASES):
        steps = 25
        exchange = hvd.Pipelined(k, warmup, anneal, correction)
        model = _model(alpha, momentum, exchange, f"formulas{number}{compiled}", compiled)
        expected = reference(steps, k, alpha, momentum, anneal, correction, warmup, keras=True)
        for step in range(steps):
            _step(model)
            with model.optimizer.real_weights():
                _close(model.w, expected[step], (number, step))
        if correction:
            assert np.abs(numpy(model.w) - expected[steps - 1]).max() > 1e-5
        assert model.optimizer.drain() == k - 1
        _close(model.w, expected[-1])
        assert float(numpy(model.optimizer.learning_rate)) == pytest.approx(alpha)
        same_everywhere([model.w], f"formulas.end{number}{compiled}")


@keras_ranks(2, hvd="paceline.keras")
def test_resumed_run_goes_on_bit_for_bit(rank: int, size: int, hvd: Any) -> None:
    exchange = hvd.Pipelined(k=3, warmup_steps=4, annealing_steps=10, correction=0.2)
    for before in (2, 5, 12):  # in the warm-up, while the pipeline fills, and later
        first = _model(0.1, 0.9, exchange, f"resumed{before}", compiled=True)
        _step(first, before)
        state = pickle.dumps(first.optimizer.in_flight())
        weights = [numpy(one) for one in (first.w, *first.optimizer.variables)]
        _step(first, 6)
        first.optimizer.drain()

        second = _model(0.1, 0.9, exchange, f"resumed{before}", compiled=True)
        second.optimizer.build([second.w])
        for variable, value in zip((second.w, *second.optimizer.variables), weights, strict=True):
            variable.assign(value)
        second.optimizer.load_in_flight(pickle.loads(state))
        _step(second, 6)
        second.optimizer.drain()
        assert numpy(second.w).tolist() == numpy(first.w).tolist(), before


@keras_ranks(2, hvd="paceline.keras")
def test_weights_that_are_loaded_meanwhile_stay(rank: int, size: int, hvd: Any) -> None:
    model = _model(0.1, 0.9, hvd.Pipelined(correction=0.1), "loaded")
    _step(model, 5)
    model.w.assign([7.0, 8.0, 9.0])
    with model.optimizer.real_weights():
        assert numpy(model.w).tolist() == [7.0, 8.0, 9.0]
    # Without help the weights are the real ones already.
    plain = _model(0.1, 0.9, "pipelined", "plain")
    _step(plain, 5)
    before = numpy(plain.w).tolist()
    with plain.optimizer.real_weights():
        assert numpy(plain.w).tolist() == before


def test_tape_says_that_it_cannot_help() -> None:
    import paceline.tensorflow as hvd
    from paceline.tensorflow.tape.exchange import check

    with pytest.raises(UserError, match=r"(?s)correction=0.1.*DistributedOptimizer"):
        check(hvd.Pipelined(correction=0.1))
