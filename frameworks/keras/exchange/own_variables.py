"""Variables that an exchange counts and remembers in, on the backend in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.keras.backend import keras


def zeros_variable(shape: Any, dtype: str) -> Any:
    """A variable of zeros that belongs to no layer, also where a step is being compiled."""
    if keras.backend.backend() != "tensorflow":
        return keras.Variable(np.zeros(shape, np.float32), dtype=dtype, trainable=False)
    import tensorflow as tf

    with tf.init_scope():
        return keras.Variable(np.zeros(shape, np.float32), dtype=dtype, trainable=False)
