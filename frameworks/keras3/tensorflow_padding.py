"""Datasets of TensorFlow whose last batch is repeated up to a number of batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.errors import UsageError


def padded(dataset: Any, batches: int, marked: Callable[[Any, Any], Any]) -> Any:
    """Return `dataset` with `batches` batches, each as `marked(batch, own)`.

    `own`: a scalar tensor, False for repetitions of the last batch. The dataset is read once. Raises UsageError for
    sparse and ragged tensors.
    """
    spec = dataset.element_spec
    others = [type(one).__name__ for one in tf.nest.flatten(spec) if not isinstance(one, tf.TensorSpec)]
    if others:
        raise UsageError(
            f"hvd.uneven() expected batches of dense tensors, found {others[0]}.",
            "Make the tensors of the dataset dense (tf.sparse.to_dense, RaggedTensor.to_tensor).",
        )
    empty = tf.nest.map_structure(lambda one: tf.zeros(_least(one.shape), one.dtype), spec)
    several = type(spec) is tuple  # which map() gives a function as several arguments
    own = dataset.map(lambda *parts: (parts if several else parts[0], True))
    repetitions = tf.data.Dataset.from_tensors((empty, False)).repeat()

    def keep_last(last: Any, element: Any) -> Any:
        batch, is_own = element
        batch = tf.cond(is_own, lambda: batch, lambda: last)
        return batch, marked(batch, is_own)

    return own.concatenate(repetitions).take(batches).scan(empty, keep_last)


def _least(shape: Any) -> list[int]:
    return [] if shape.rank is None else [length or 0 for length in shape]
