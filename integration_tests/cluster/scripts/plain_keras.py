"""An ordinary horovod.tensorflow.keras training script: a small network on digits, one shard per rank."""

import hashlib
import json
import socket

import horovod.tensorflow.keras as hvd
import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

hvd.init()
keras.utils.set_random_seed(hvd.rank())  # ranks start apart; the broadcast makes them equal
tf.config.threading.set_intra_op_parallelism_threads(1)
digits = load_digits()
pixels, labels = digits.data.astype("float32") / 16, digits.target
train, test = train_test_split(range(len(labels)), test_size=0.2, random_state=0)
train = train[hvd.rank() : len(train) // hvd.size() * hvd.size() : hvd.size()]

model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10, "softmax")])
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.003))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
model.fit(pixels[train], labels[train], batch_size=40, epochs=15, callbacks=callbacks, verbose=0)

_loss, accuracy = model.evaluate(pixels[test], labels[test], verbose=0)
weights = b"".join(weight.tobytes() for weight in model.get_weights())
report = {"rank": hvd.rank(), "size": hvd.size(), "local_rank": hvd.local_rank(), "cross_size": hvd.cross_size()}
report |= {"host": socket.gethostname(), "accuracy": float(accuracy), "checksum": hashlib.sha256(weights).hexdigest()}
print("REPORT", json.dumps(report), flush=True)
