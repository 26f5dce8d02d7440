"""TensorFlow gradients with the rank's weight appended, and their means; in graphs and eagerly."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from paceline.errors import UsageError
from paceline.keras3.weighing import REMEDY


def checked(weight: Any, rank: int) -> Any:
    """Return a weight as a float64 scalar; InvalidArgumentError if it is negative or not finite."""
    w = tf.reshape(tf.cast(weight, tf.float64), [])
    words = [f"Rank {rank}: weight =", w, f"cannot be used. {REMEDY}"]
    with tf.control_dependencies([tf.debugging.Assert(tf.math.is_finite(w) & (w >= 0), words)]):
        return tf.identity(w)


def with_weight(grad: Any, weight: Any, dense: bool) -> Any:
    """Return the flattened gradient times a scalar weight, with the weight appended.

    If the weight is 0, the elements are zeros, whatever the gradient is. Raises UsageError for a sparse gradient unless
    `dense` is set, and for float16.
    """
    if isinstance(grad, tf.IndexedSlices) and not dense:
        raise UsageError("A weight was given, and a gradient is sparse.", "Give sparse_as_dense=True, or no weight.")
    tensor = tf.convert_to_tensor(grad)
    if tensor.dtype == tf.float16:
        raise UsageError("A weight was given, and a gradient is of float16.", "Use float32 or bfloat16 variables.")
    kind = tf.float32 if tensor.dtype == tf.bfloat16 else tensor.dtype
    w = tf.cast(weight, kind)
    body = tf.math.multiply_no_nan(tf.cast(tf.reshape(tensor, [-1]), kind), w)
    return tf.concat([body, tf.reshape(w, [1])], 0)


def mean_of(flat: Any, grad: Any, divided: bool) -> Any:
    """Return the mean from a result, in the gradient's shape and type; zeros if no rank had weight.

    `divided`: the exchange has divided it already.
    """
    body = flat[:-1] if divided else tf.math.divide_no_nan(flat[:-1], flat[-1])
    mean = tf.cast(tf.reshape(body, tf.shape(grad)), grad.dtype)
    mean.set_shape(grad.shape)
    return mean


def mean_or(flat: Any, value: Any) -> Any:
    """Return the mean from a result; `value`, whose mean it is, if no rank had weight."""
    return tf.where(flat[-1] > 0, mean_of(flat, value, False), value)
