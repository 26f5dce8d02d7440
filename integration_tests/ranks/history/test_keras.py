"""Histories of Keras on TensorFlow and on PyTorch, and of TensorFlow's tapes: compiled steps write them, too."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from integration_tests.support.histories import checked, counts, history
from integration_tests.support.keras_worlds import BACKENDS
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from paceline.history.checks.results import Check

EPOCHS, STEPS = 2, 9  # steps of each epoch
UPDATES = EPOCHS * STEPS
TENSORS = 4


def _exchange(hvd: Any, name: str) -> Any:
    return {
        "k3": hvd.Pipelined(k=3, warmup_steps=2),
        "majority": "majority",
        "synced": hvd.Partial(quorum="solo", sync_every=6),
        "local": hvd.Local(sync_every=6),
        "split": "split",
    }[name]


class _Late(keras.callbacks.Callback):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self._chance = random.Random(rank)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._chance.random() < 0.5:
            time.sleep(self._chance.random() * 0.02)


def _fit(rank: int, size: int, folder: str, name: str) -> None:
    with history(folder, "paceline.keras") as hvd:
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(3)]
        model = keras.Sequential([keras.layers.Input((5,)), *layers])
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), exchange=_exchange(hvd, name))
        model.compile(wrapped, loss="mse")
        data = np.random.default_rng(rank)
        x, y = data.normal(size=(4 * STEPS, 5)), data.normal(size=(4 * STEPS, 3))
        late = [_Late(rank)] if name in ("majority", "synced") else []
        model.fit(x, y, batch_size=4, epochs=EPOCHS, verbose=0, callbacks=late)
        model.optimizer.drain()


@pytest.mark.parametrize("size", [2, more(3, id="3")])
@pytest.mark.parametrize("name", ["k3", "majority", "synced", "local", "split"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_fit(backend: str, name: str, size: int, tmp_path: Path) -> None:
    run_ranks(_fit, size, str(tmp_path), name, env={"KERAS_BACKEND": backend})
    exchange = {"k3": "pipelined", "local": "local", "split": "split"}.get(name, "partial")
    results = checked(tmp_path, exchange)
    for one in counts(tmp_path):
        assert one["produced"] == UPDATES * TENSORS and one["step"] == UPDATES
        assert one["updated"] == UPDATES - (2 if name == "k3" else 0)
        assert one["put"] == one["averaged"]
    assert not results[Check.SUM].skipped
    assert results[Check.SUM].sensitive > 0
    if name in ("synced", "local"):
        averages = UPDATES // 6 * TENSORS
        assert results[Check.MEAN].compared >= averages
        assert results[Check.WEIGHTS].compared >= averages * (size - 1)
    if name == "split":
        assert results[Check.WEIGHTS].compared == UPDATES * TENSORS * (size - 1)
    if name == "k3":
        assert results[Check.WEIGHTS].compared >= (UPDATES - 2) * TENSORS * (size - 1)


def _tape(rank: int, size: int, folder: str, exchange: str, inside: bool) -> None:
    import tensorflow as tf

    with history(folder, "paceline.tensorflow") as hvd:
        w = tf.Variable(np.linspace(-1.0, 1.0, 11), dtype=tf.float64)
        optimizer = keras.optimizers.SGD(0.1)

        def step(factor: Any) -> None:
            with tf.GradientTape() as tape:
                loss = factor * tf.reduce_sum(w**2 / 2)
            tape = hvd.DistributedGradientTape(tape, exchange=exchange)
            optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w], strict=True))

        run = tf.function(step) if inside else step
        for number in range(UPDATES):
            run(tf.constant(1.0 + rank + number, tf.float64))
        hvd.drain_tape(optimizer, [w])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("exchange", ["pipelined", "majority"])
def test_tapes(exchange: str, inside: bool, tmp_path: Path) -> None:
    run_ranks(_tape, 2, str(tmp_path), exchange, inside, env={"KERAS_BACKEND": "tensorflow"})
    # A tape does not know the weights.
    results = checked(tmp_path, "pipelined" if exchange == "pipelined" else "partial", frozenset({Check.WEIGHTS}))
    for one in counts(tmp_path):
        assert one["produced"] == UPDATES == one["step"]
        assert one["applied"] >= UPDATES
    sums = results[Check.SUM]
    assert sums.compared >= UPDATES and sums.sensitive > 0
    if exchange == "pipelined":  # results of rounds that a late rank missed are compared as one sum
        assert sums.sensitive == sums.compared
