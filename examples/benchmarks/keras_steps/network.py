"""ResNet-20 (He et al., CVPR 2016) in Keras, for images of 32 x 32, and a batch of a rank."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

CLASSES = 10
SIDE = 32
SEED = 20


def _conv(inputs: Any, width: int, kernel: int = 3, strides: int = 1) -> Any:
    import keras

    found = keras.layers.Conv2D(width, kernel, strides, padding="same", use_bias=False)(inputs)
    return keras.layers.BatchNormalization()(found)


def resnet20() -> Any:
    """Return the network; all ranks begin with equal weights."""
    import keras

    keras.utils.set_random_seed(SEED)
    images = keras.Input((SIDE, SIDE, 3))
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    last = keras.layers.ReLU()(_conv(images, widths[0]))
    for inputs, width in pairwise(widths):
        strides = 1 if inputs == width else 2
        first = keras.layers.ReLU()(_conv(last, width, strides=strides))
        # A 1 x 1 convolution where the width changes.
        shortcut = last if inputs == width else _conv(last, width, kernel=1, strides=strides)
        last = keras.layers.ReLU()(keras.layers.Add()([_conv(first, width), shortcut]))
    scores = keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(last))
    return keras.Model(images, scores)


def batch(rank: int, size: int) -> tuple[Any, Any]:
    """Return `size` images and labels of a rank, the same in every step: values do not affect the time of a step."""
    import keras
    import numpy as np

    own = np.random.default_rng([SEED, rank])
    images = own.standard_normal((size, SIDE, SIDE, 3), dtype=np.float32)
    labels = own.integers(CLASSES, size=size)
    return keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)
