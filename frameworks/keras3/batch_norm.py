"""Batch normalisation over the batches of all ranks, for Keras 3 on TensorFlow."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from horovod.tensorflow.mpi_ops import Sum, _allreduce, size

from paceline.exchange.own_names import own_name
from paceline.native.library import loaded


@keras.saving.register_keras_serializable(package="horovod")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization whose statistics, while training, are those of all ranks' batches together."""

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        super().__init__(**kwargs)
        self._operation: str | None = None

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, mask)
        if size() == 1:
            return mean, variance
        if self._operation is None:
            # Not the layer's own name: Keras counts these in each process, and ranks may have made different models.
            self._operation = own_name(loaded("tensorflow"), 0, "HorovodAllreduce_sync_batch_normalization")
        # Var[X] = E[X^2] - E[X]^2, with both expectations over the rows of all ranks: batches may differ in size.
        rows = self._rows(inputs, mask, mean.dtype)
        moments = tf.stack([mean, variance + tf.square(mean)])
        mine = tf.concat([tf.math.multiply_no_nan(moments, rows), tf.fill([1, tf.shape(mean)[0]], rows)], axis=0)
        sums = _allreduce(mine, op=Sum, name=self._operation)
        mean, mean_of_square = tf.unstack(tf.math.divide_no_nan(sums[:2], sums[2:]), num=2)
        return mean, mean_of_square - tf.square(mean)

    def _rows(self, inputs: Any, mask: Any, dtype: Any) -> Any:
        """Number of values per channel in this rank's moments."""
        if mask is not None:
            return tf.reduce_sum(tf.cast(tf.cast(mask, "bool"), dtype))
        return tf.reduce_prod(tf.cast(tf.gather(tf.shape(inputs), self._reduction_axes), dtype))
