"""fit() with its default settings under every exchange, as test_exchanges.py has it for PyTorch's trainers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import paceline.keras as hvd
from integration_tests.support.keras_worlds import mostly_on_torch, numpy, same_everywhere

PARTIAL = ("majority", "solo", "quorum")
EXCHANGES = ("sync", "pipelined", "local", *PARTIAL)
BATCH, BATCHES, EPOCHS, RATE = 8, 24, 2, 5e-3
SINGLE = 1e-5  # of the largest weight: Keras' default type is float32


def _model() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def _delayed() -> Any:
    """Adam with the gradients of the step before, as Pipe-SGD with K = 2; for eager steps."""

    class Delayed(keras.optimizers.Adam):
        held: Any = None

        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            new = [keras.ops.copy(one) for one in grads]
            self.held, held = new, self.held
            if held is not None:
                super().apply(held, trainable_variables)
            elif trainable_variables is not None and not self.built:
                self.build(trainable_variables)

    return Delayed(RATE)


def _fit(model: Any, optimizer: Any, data: tuple[Any, Any], rows: int, **choices: Any) -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], run_eagerly=choices.pop("run_eagerly", False))
    model.fit(*data, batch_size=rows, epochs=EPOCHS, shuffle=False, verbose=0, **choices)


def _weights(model: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([numpy(one).ravel() for one in model.weights])


def _alone(exchange: str, whole: Any, parts: Any, size: int) -> np.ndarray[Any, Any]:
    """The weights of one process after the same training."""
    runs = [(part, BATCH) for part in parts] if exchange == "local" else [(whole, BATCH * size)]
    found = []
    for data, rows in runs:
        model, delayed = _model(), exchange == "pipelined"
        optimizer = _delayed() if delayed else keras.optimizers.Adam(RATE)
        _fit(model, optimizer, data, rows, run_eagerly=delayed)
        found.append(_weights(model))
    return np.mean(found, 0)


@mostly_on_torch(2, more=(3,))
def test_replicas_end_equal_and_as_one_process(rank: int, size: int) -> None:
    from paceline.examples import digits

    images, labels, *_ = digits.data(0, 1)
    whole = images[: size * BATCH * BATCHES].reshape(-1, 64), labels[: size * BATCH * BATCHES]
    shape = (BATCHES, size, BATCH)
    parts: list[Any] = [
        tuple(one.reshape(*shape, *one.shape[1:])[:, r].reshape(-1, *one.shape[1:]) for one in whole)
        for r in range(size)
    ]
    for exchange in EXCHANGES:
        settings = {"local": hvd.Local(sync_every=10**6), "quorum": hvd.Partial(quorum=2)}.get(exchange, exchange)
        model = _model()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(RATE), exchange=settings, name=f"fit.{exchange}")
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        _fit(model, optimizer, parts[rank], BATCH, callbacks=callbacks)
        if exchange == "local":
            optimizer.drain()
        here = _weights(model)
        if exchange != "sync":
            optimizer.drain()
        if exchange in PARTIAL:
            from paceline.examples import replicas_keras

            replicas_keras.average(model)
            logits = numpy(model(whole[0]))
            assert (logits.argmax(1) == whole[1]).mean() > 0.3, exchange
        else:
            there = _alone(exchange, whole, parts, size)
            assert np.abs(here - there).max() < SINGLE * np.abs(there).max(), exchange
        same_everywhere(model.weights, f"fit.{exchange}")
