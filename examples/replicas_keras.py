"""Compare the weights of a Keras example between ranks, and average them."""

from __future__ import annotations

import zlib

import keras
import numpy as np

import paceline.keras as hvd


def equal(model: keras.Model) -> bool:
    """Return True if the weights of all ranks are bitwise equal."""
    checksum = zlib.crc32(b"".join(weights.tobytes() for weights in model.get_weights()))
    checksums = hvd.allgather(np.array([checksum], dtype=np.int64), name="checksum")
    return len(np.unique(checksums)) == 1


def average(model: keras.Model) -> None:
    """Replace the weights, all floating-point, by their mean over all ranks.

    A partial exchange needs this before all ranks evaluate or save: its replicas drift apart unless they are trained
    with plain SGD (docs/methods/partial.md).
    """
    weights = enumerate(model.get_weights())
    model.set_weights([np.asarray(hvd.allreduce(one, name=f"mean.{place}")) for place, one in weights])
