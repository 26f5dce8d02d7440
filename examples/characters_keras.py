"""A character-level transformer with Keras 3: `horovodrun -np 2 python examples/characters_keras.py --steps 300`.

It learns to predict the next character of Python's standard library. With `--exchange pipelined`, gradients are in
flight while the next step computes (docs/methods/pipelined.md). `--exchange majority` or `solo` does not wait for late
ranks (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

import paceline.keras as hvd
from paceline.examples import characters, replicas_keras
from paceline.examples.characters import CONTEXT, HEADS, LAYERS, VOCABULARY, WIDTH

SHOW_EVERY = 50


class Places(layers.Layer):
    """Adds a learned vector to each position of a window."""

    def build(self, shape: Any) -> None:
        """Create one vector for each position."""
        self.vectors = self.add_weight(shape=(CONTEXT, WIDTH), initializer=keras.initializers.RandomNormal(stddev=0.02))

    def call(self, inputs: Any) -> Any:
        """Add the vectors to `inputs` (n, CONTEXT, WIDTH)."""
        return inputs + self.vectors


def net() -> keras.Model:
    """Return a decoder: embeddings, causal self-attention, and a dense layer; 137,000 parameters."""
    text = keras.Input((CONTEXT,), dtype="int32")
    found = Places()(layers.Embedding(VOCABULARY, WIDTH, embeddings_initializer="normal")(text))
    for _ in range(LAYERS):
        normed = layers.LayerNormalization()(found)
        found += layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(normed, normed, use_causal_mask=True)
        normed = layers.LayerNormalization()(found)
        found += layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="gelu")(normed))
    return keras.Model(text, layers.Dense(VOCABULARY)(layers.LayerNormalization()(found)))


class Rate(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate schedule of all character-level examples."""

    def __init__(self, largest: float, steps: int) -> None:
        self.rates = np.array([largest * characters.rate_factor(step, steps) for step in range(steps)], np.float32)

    def __call__(self, step: Any) -> Any:
        """Return the rate of a step; after the last step, the last rate."""
        last = len(self.rates) - 1
        return keras.ops.take(keras.ops.convert_to_tensor(self.rates), keras.ops.minimum(step, last))


class Progress(keras.callbacks.Callback):
    """Prints a line every few steps."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the mean loss so far."""
        if (batch + 1) % SHOW_EVERY == 0:
            characters.show(batch + 1, self.params["steps"], (logs or {})["loss"])


def main() -> None:
    """Train, and test on text that no rank has seen."""
    chosen = characters.arguments("A character-level transformer with Keras on all ranks.")
    hvd.init()
    keras.utils.set_random_seed(chosen.seed)
    windows = characters.training(hvd.rank(), hvd.size(), chosen.steps * chosen.batch_size, chosen.seed)
    model = net()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(Rate(chosen.learning_rate, chosen.steps)),
        # A batch contains most of the characters, so the embedding's gradient is hardly sparse.
        sparse_as_dense=True,
        exchange=characters.exchange(chosen),  # (*)
    )
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss_of, metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    callbacks.append(hvd.callbacks.DrainCallback())  # (*) the last update, whose gradients are still in flight
    if hvd.rank() == 0:
        callbacks.append(Progress())
    model.fit(
        windows.inputs,
        windows.targets,
        batch_size=chosen.batch_size,
        shuffle=False,  # the windows are from random positions already
        callbacks=callbacks,
        verbose=0,
    )

    if hvd.exchange_stats().rounds:
        replicas_keras.average(model)  # (*) replicas drift apart with an exchange that does not wait
    test = characters.held_out()
    loss, accuracy = model.evaluate(test.inputs, test.targets, batch_size=250, verbose=0)
    equal = replicas_keras.equal(model)
    if hvd.rank() == 0:
        framework = f"Keras {keras.__version__} ({keras.backend.backend()})"
        characters.conclude(framework, float(loss), float(accuracy), equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
