"""Keras rank of the demo: a convolutional net on handwritten digits."""

from __future__ import annotations

import os
from typing import Any

import keras

import paceline.keras as hvd
from paceline.examples import digits, replicas_keras
from paceline.examples.demo import measuring
from paceline.examples.digits_keras import net


class _Alone(keras.callbacks.Callback):
    """Times steps without an exchange."""

    def __init__(self, timed: measuring.Steps) -> None:
        super().__init__()
        self._timed = timed

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._timed.begin_alone()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._timed.end_alone()


class _Timed(_Alone):
    """Times steps with the exchange."""

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._timed.begin()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._timed.end()


def _compiled(optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model = net()
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def main() -> None:
    """Train, test on images that no rank has seen, and write rank 0's result."""
    chosen = measuring.arguments()
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    train_x, train_y, test_x, test_y = digits.data(rank, size)
    train_x, test_x = train_x[..., None], test_x[..., None]  # one channel
    per_epoch = -(-len(train_x) // digits.BATCH)
    epochs = max(1, round(chosen.steps / per_epoch))
    timed = measuring.Steps(rank, size, chosen.late_ms, epochs * per_epoch)

    keras.utils.set_random_seed(0)  # all ranks begin with the same weights
    few = measuring.ALONE_STEPS * digits.BATCH
    _compiled(keras.optimizers.Adam(1e-3)).fit(
        train_x[:few], train_y[:few], batch_size=digits.BATCH, callbacks=[_Alone(timed)], verbose=0
    )

    hvd.init()
    keras.utils.set_random_seed(1)
    model = _compiled(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * size)))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.DrainCallback(), _Timed(timed)]
    model.fit(train_x, train_y, batch_size=digits.BATCH, epochs=epochs, callbacks=callbacks, verbose=0)
    if hvd.exchange_stats().rounds:  # replicas of an exchange that does not wait drift apart
        replicas_keras.average(model)
    equal = replicas_keras.equal(model)
    accuracy = float(model.evaluate(test_x, test_y, verbose=0)[1])
    timed.conclude(chosen.result, accuracy, equal)


if __name__ == "__main__":
    main()
