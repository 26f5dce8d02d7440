"""Batch normalisation over the batches of all ranks, for Keras 3 on TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from horovod.tensorflow.mpi_ops import Sum, _allreduce, size


@keras.saving.register_keras_serializable(package="horovod")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization whose statistics, while training, are those of all ranks' batches together."""

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        kwargs.setdefault("name", "sync_batch_normalization")
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, mask)
        if size() == 1:
            return mean, variance
        # Var[X] = E[X^2] - E[X]^2, with both expectations over all ranks.
        mine = tf.stack([mean, variance + tf.square(mean)])
        name = f"HorovodAllreduce_{self.name}"
        both = _allreduce(mine, op=Sum, name=name) / tf.cast(size(), mine.dtype)
        mean, mean_of_square = tf.unstack(both)
        return mean, mean_of_square - tf.square(mean)
