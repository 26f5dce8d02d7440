"""Handwritten digits with Keras 3: `horovodrun -np 2 python examples/digits_keras.py --epochs 8`.

A small convolutional net learns scikit-learn's 1797 images of 8x8 pixels. Each rank trains on its share of the images
and Horovod averages the gradients; (1) to (4) mark the lines that make the script distributed. An environment variable
selects how gradients are merged into messages, for example PACELINE_FUSION=optimal. With `--exchange pipelined`,
gradients are in flight while the next step computes (docs/methods/pipelined.md). `--exchange majority` or `solo` does
not wait for late ranks (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

import paceline.keras as hvd
from paceline.arguments import exchange_asked
from paceline.examples import digits, replicas_keras


def net() -> keras.Model:
    """Return a network of two convolutions and two dense layers, about 70,000 parameters."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


class Progress(keras.callbacks.Callback):
    """Prints a line every few steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.epoch = steps, 0
        self.accuracy: float | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Count epochs from 1."""
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the loss of the epoch so far, and the accuracy of the previous epoch."""
        if (batch + 1) % 5 == 0:
            self.show(batch + 1, logs or {})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print loss and test accuracy of the whole epoch."""
        self.accuracy = (logs or {}).get("val_accuracy", self.accuracy)
        self.show(self.steps, logs or {})
        if hvd.exchange_stats().rounds:
            print(hvd.exchange_stats(), flush=True)

    def show(self, step: int, logs: dict[str, Any]) -> None:
        """Print one line."""
        print(digits.line(self.epoch, self.params["epochs"], step, self.steps, logs["loss"], self.accuracy), flush=True)


def main() -> None:
    """Train, test, and write the result as JSON if --result is given."""
    arguments = digits.arguments("Handwritten digits with Keras on all ranks.")

    hvd.init()  # (1)
    keras.utils.set_random_seed(1000 * arguments.seed + 1 + hvd.rank())
    train_x, train_y, test_x, test_y = digits.data(hvd.rank(), hvd.size())  # (2)
    train_x, test_x = train_x[..., None], test_x[..., None]  # one channel
    model = net()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()), exchange=arguments.exchange),  # (3)
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]  # (4)
    if exchange_asked(arguments.exchange).ranks_meet:  # (*) with these exchanges ranks wait for each other here
        callbacks.append(hvd.callbacks.MetricAverageCallback())  # (4)
    # (*) Applies gradients that are still in flight at the end; none if the exchange is synchronous.
    callbacks.append(hvd.callbacks.DrainCallback())
    if hvd.rank() == 0:
        callbacks.append(Progress(steps=-(-len(train_x) // digits.BATCH)))
    model.fit(
        train_x,
        train_y,
        batch_size=digits.BATCH,
        epochs=arguments.epochs,
        validation_data=(test_x, test_y),
        callbacks=callbacks,
        verbose=0,
    )

    if hvd.exchange_stats().rounds:
        replicas_keras.average(model)  # (*) replicas have drifted apart
    loss, accuracy = map(float, model.evaluate(test_x, test_y, verbose=0))
    equal = replicas_keras.equal(model)
    if hvd.rank() == 0:
        framework = f"Keras {keras.__version__} ({keras.backend.backend()})"
        digits.conclude(hvd, arguments.result, framework=framework, loss=loss, accuracy=accuracy, equal=equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
