"""Gradients of TensorFlow with their rank's weight behind them, and their means; in graphs and eagerly."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from paceline.errors import UsageError
from paceline.keras3.weighing import REMEDY


def checked(weight: Any, rank: int) -> Any:
    """Return a weight as a scalar of float64; InvalidArgumentError where it is negative or not finite."""
    w = tf.reshape(tf.cast(weight, tf.float64), [])
    words = [f"Rank {rank}: weight =", w, f"cannot be used. {REMEDY}"]
    with tf.control_dependencies([tf.debugging.Assert(tf.math.is_finite(w) & (w >= 0), words)]):
        return tf.identity(w)


def with_weight(grad: Any, weight: Any, dense: bool) -> Any:
    """Return the elements of a gradient times a weight, a scalar, and the weight behind them.

    At the weight 0 they are zeros, whatever the gradient is. Raises UsageError for a sparse gradient unless it
    becomes `dense`, and for one of float16.
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
    """Return the mean in what has travelled, in shape and type of the gradient; zeros where no rank had weight.

    `divided`: the exchange has divided it.
    """
    body = flat[:-1] if divided else tf.math.divide_no_nan(flat[:-1], flat[-1])
    mean = tf.cast(tf.reshape(body, tf.shape(grad)), grad.dtype)
    mean.set_shape(grad.shape)
    return mean


def mean_or(flat: Any, value: Any) -> Any:
    """Return the mean in what has travelled; `value`, which it is the mean of, where no rank had weight."""
    return tf.where(flat[-1] > 0, mean_of(flat, value, False), value)
