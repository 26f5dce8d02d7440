"""Handwritten digits with Keras on all ranks: `horovodrun -np 2 python examples/minimal_keras.py`."""

import keras
from sklearn.datasets import load_digits

import paceline.keras as hvd

hvd.init()
digits = load_digits()  # 1797 images of 8x8 pixels; the last 297 are for testing
images, labels = digits.data / 16, digits.target
share = slice(hvd.rank(), 1500 // hvd.size() * hvd.size(), hvd.size())  # each rank gets a disjoint share of equal size
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10, activation="softmax")]
)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))  # applies the mean of all gradients
model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    images[share],
    labels[share],
    batch_size=32,
    epochs=10,
    validation_data=(images[1500:], labels[1500:]),
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # all ranks begin with rank 0's weights
        hvd.callbacks.DrainCallback(),  # apply gradients still in flight; none if the exchange is synchronous
    ],
    verbose=2 if hvd.rank() == 0 else 0,
)
