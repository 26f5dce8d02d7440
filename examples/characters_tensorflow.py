"""A character-level transformer in a custom loop: `horovodrun -np 2 python examples/characters_tensorflow.py`.

The network of characters_keras.py, trained by a compiled step with TensorFlow's tape. With `--exchange pipelined`,
gradients are in flight while the next step computes (docs/methods/pipelined.md). `--exchange majority` or `solo` does
not wait for late ranks (docs/methods/partial.md). (*) marks the lines that these exchanges need.
"""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import tensorflow as tf

import paceline.tensorflow as hvd
from paceline.examples import characters, replicas_keras
from paceline.examples.characters_keras import SHOW_EVERY, Rate, net


def main() -> None:
    """Train, and test on text that no rank has seen."""
    chosen = characters.arguments("A character-level transformer with TensorFlow on all ranks.")
    hvd.init()
    keras.utils.set_random_seed(chosen.seed)
    windows = characters.training(hvd.rank(), hvd.size(), chosen.steps * chosen.batch_size, chosen.seed)
    model = net()
    optimizer = keras.optimizers.Adam(Rate(chosen.learning_rate, chosen.steps))
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([variable.value for variable in model.variables + optimizer.variables], root_rank=0)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(inputs, training=True))
        # A batch contains most of the characters, so the embedding's gradient is hardly sparse.
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True, exchange=characters.exchange(chosen))  # (*)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for number in range(chosen.steps):
        loss = step(*map(tf.constant, windows.batch(number, chosen.batch_size)))
        if hvd.rank() == 0 and (number + 1) % SHOW_EVERY == 0:
            characters.show(number + 1, chosen.steps, float(loss))
    hvd.drain_tape(optimizer, model.trainable_variables)  # (*) the last update, whose gradients are still in flight

    if hvd.exchange_stats().rounds:
        replicas_keras.average(model)  # (*) replicas drift apart with an exchange that does not wait
    test = characters.held_out()
    model.compile(loss=loss_of, metrics=["accuracy"])
    test_loss, accuracy = model.evaluate(test.inputs, test.targets, batch_size=250, verbose=0)
    equal = replicas_keras.equal(model)
    if hvd.rank() == 0:
        characters.conclude(f"TensorFlow {tf.__version__}", float(test_loss), float(accuracy), equal)
    hvd.shutdown()


if __name__ == "__main__":
    main()
