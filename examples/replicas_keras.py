"""Whether the ranks of a Keras example hold the same weights, and making it so."""

from __future__ import annotations

import zlib

import keras
import numpy as np

import paceline.keras as hvd


def equal(model: keras.Model) -> bool:
    """Whether all ranks hold bit for bit the same weights."""
    checksum = zlib.crc32(b"".join(weights.tobytes() for weights in model.get_weights()))
    checksums = hvd.allgather(np.array([checksum], dtype=np.int64), name="checksum")
    return len(np.unique(checksums)) == 1


def average(model: keras.Model) -> None:
    """Give all ranks the mean of their weights, all floating-point.

    What a partial exchange needs before all ranks evaluate or save: its replicas drift apart unless they are trained
    with plain SGD (docs/methods/partial.md).
    """
    weights = enumerate(model.get_weights())
    model.set_weights([np.asarray(hvd.allreduce(one, name=f"mean.{place}")) for place, one in weights])
