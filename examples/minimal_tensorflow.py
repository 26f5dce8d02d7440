"""Handwritten digits with TensorFlow on all ranks: `horovodrun -np 2 python examples/minimal_tensorflow.py`."""

import tensorflow as tf
from sklearn.datasets import load_digits

import paceline.tensorflow as hvd

hvd.init()
images, labels = load_digits(return_X_y=True)  # 1797 images of 8x8 pixels; the last 297 are for testing
data = tf.data.Dataset.from_tensor_slices((images[:1500] / 16, labels[:1500])).shard(hvd.size(), hvd.rank())
data = data.take(1500 // hvd.size()).shuffle(1500).batch(32)  # disjoint shares of equal size
model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)  # all begin with rank 0's
optimizer, loss_of = tf.keras.optimizers.Adam(1e-3 * hvd.size()), tf.keras.losses.SparseCategoricalCrossentropy(True)


@tf.function
def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Update with the mean of all ranks' gradients."""
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images))
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(1, 11):
    losses = [step(*batch) for batch in data]
    hvd.drain_tape(optimizer, model.trainable_variables)  # gradients in flight; none if the exchange is synchronous
    if hvd.rank() == 0:
        right = tf.reduce_mean(tf.cast(tf.argmax(model(images[1500:] / 16), 1) == labels[1500:], tf.float32))
        print(f"epoch {epoch}/10 loss {losses[-1]:.3f} accuracy {right:.3f}", flush=True)
