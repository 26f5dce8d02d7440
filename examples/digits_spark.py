"""Handwritten digits with Keras in tasks of Spark: `python digits_spark.py --workers 2`.

The tasks get the PACELINE_* variables of this process, such as PACELINE_EXCHANGE=pipelined.
"""

import argparse
import os
import sys

import horovod.spark
from pyspark.sql import SparkSession


def train(epochs: int) -> float:
    """Train as one rank and return the test accuracy."""
    import keras
    from sklearn.datasets import load_digits

    import paceline.keras as hvd

    hvd.init()
    digits = load_digits()  # 1797 images of 8x8 pixels; the last 297 are for testing
    images, labels = digits.data / 16, digits.target
    share = slice(hvd.rank(), 1500 // hvd.size() * hvd.size(), hvd.size())  # each rank gets a disjoint share
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10, activation="softmax")]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.DrainCallback()]
    model.fit(images[share], labels[share], batch_size=32, epochs=epochs, callbacks=callbacks, verbose=0)
    return float(model.evaluate(images[1500:], labels[1500:], verbose=0)[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Handwritten digits with Keras in tasks of Spark.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--master", help="as spark-submit has it; by default as many local tasks as workers")
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the tasks
    builder = SparkSession.builder.master(arguments.master or f"local[{arguments.workers}]")
    session = builder.getOrCreate()
    accuracies = horovod.spark.run(train, args=(arguments.epochs,), num_proc=arguments.workers, use_gloo=True)
    for rank, accuracy in enumerate(accuracies):
        print(f"rank {rank}: accuracy {accuracy:.3f}")
    session.stop()
