"""TensorFlow's multi-worker tutorial on all ranks: `horovodrun -np 2 python examples/multiworker_keras.py`.

The tutorial's `MultiWorkerMirroredStrategy` becomes one changed line here: the optimizer is wrapped. Everything else is
the tutorial's, with handwritten digits of scikit-learn instead of a download.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

PER_RANK = 64  # images per step
EPOCHS, STEPS_PER_EPOCH = 3, 20


def images() -> tuple[Any, Any]:
    """Return 1,797 images, (samples, 28, 28) between 0 and 1, and their labels."""
    digits = load_digits()
    large = np.kron(digits.images / 16, np.ones((3, 3)))
    return np.pad(large, [(0, 0), (2, 2), (2, 2)]), digits.target


def cnn(optimizer: Any) -> Any:
    """Build and compile the tutorial's model."""
    model = keras.Sequential(
        [
            keras.layers.Input(shape=(28, 28)),
            keras.layers.Reshape(target_shape=(28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def batches(rank: int, size: int) -> tuple[Any, Any]:
    """Return a rank's images and labels for an epoch: its part of each batch of `PER_RANK * size`."""
    x, y = images()
    order = np.random.default_rng(0).integers(0, len(x), (STEPS_PER_EPOCH, size, PER_RANK))
    mine = order[:, rank].reshape(-1)
    return x[mine], y[mine]


def train(rank: int, size: int, optimizer: Any, callbacks: list[Any]) -> Any:
    """Train and return the model."""
    model = cnn(optimizer)
    x, y = batches(rank, size)
    verbose = 2 if rank == 0 else 0
    model.fit(x, y, batch_size=PER_RANK, epochs=EPOCHS, shuffle=False, callbacks=callbacks, verbose=verbose)
    return model


def main() -> None:
    """Train on all ranks."""
    import paceline.keras as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(learning_rate=0.001 * hvd.size()))  # the changed line
    train(hvd.rank(), hvd.size(), optimizer, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])


if __name__ == "__main__":
    main()
