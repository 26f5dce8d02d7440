"""One rank of an elastic job of Keras: `python -m integration_tests.elastic.train_keras FOLDER SEED ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

import paceline.keras as hvd
from integration_tests.elastic.schedule import COMMIT_EVERY
from integration_tests.elastic.training import HIDDEN, RATE, STEPS, Changes, Digits, write_result


class Counter(keras.layers.Layer):
    """Passes its input on; trains a number whose gradient is the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.add_weight(shape=(), initializer="zeros", dtype="float64", name="count")
        self.factor = self.add_weight(shape=(), initializer="zeros", dtype="float64", trainable=False, name="factor")

    def call(self, inputs: Any) -> Any:
        """Return the input, and add to the loss."""
        self.add_loss(keras.ops.cast(-self.count * self.factor, "float32"))
        return inputs


def train(folder: Path, seed: int) -> None:
    """Train once, through all changes."""
    data, changes = Digits(seed), Changes(folder, hvd)
    counter = Counter()
    layers = [keras.layers.Dense(HIDDEN, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,)), counter, *layers])
    first = data.weights()
    for number, layer in enumerate(layers):
        layer.set_weights(first[2 * number : 2 * number + 2])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), f"elastic.{seed}"), loss)

    @hvd.elastic.run
    def run(state: Any) -> None:
        while state.step < STEPS:
            changes.before_step(state, state.step)
            changes.passes(state.step, "before")
            counter.factor.assign(hvd.size() / RATE)  # one update adds the number of ranks
            model.train_on_batch(*data.batch(state.step, hvd.rank()))
            for moment in ("backward", "after"):  # a compiled step has no moments of a script
                changes.passes(state.step, moment)
            changes.after_step(state.step)
            state.step += 1
            if state.step % COMMIT_EVERY == 0:
                state.commit()
        model.optimizer.drain()

    run(hvd.elastic.KerasState(model, step=0))
    logits = np.asarray(model.predict_on_batch(data.test_x), np.float64)
    count = float(keras.ops.convert_to_numpy(counter.count))
    write_result(folder, hvd.rank(), seed, data.result(logits, count))


if __name__ == "__main__":
    hvd.init()
    for one in sys.argv[2:]:
        train(Path(sys.argv[1]), int(one))
    hvd.shutdown()
