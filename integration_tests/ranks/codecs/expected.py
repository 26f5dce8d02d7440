"""What codecs may lose of a mean of gradients, and gradients to try that with."""

from __future__ import annotations

import numpy as np

LOSSY = ("bf16", "trunc16", "q8")
ELEMENTS = 1003  # above PACELINE_CODEC_LEAST_BYTES, no whole number of slices or of shards


def gradient(rank: int, step: int = 0) -> np.ndarray:
    """Rank `rank`'s gradient, float32 in -1..1."""
    values: np.ndarray = np.random.default_rng([rank, step]).uniform(-1, 1, ELEMENTS).astype(np.float32)
    return values


def mean(size: int, step: int = 0) -> np.ndarray:
    """The exact mean, in float64."""
    exact: np.ndarray = np.mean([gradient(rank, step).astype(np.float64) for rank in range(size)], 0)
    return exact


def bound(codec: str, size: int, step: int = 0) -> np.ndarray:
    """By how much an element of the mean may be wrong in a direct exchange: what ranks send is encoded, and the sum.

    bf16 and trunc16: a share of the value for each encoding. q8: half a step of 1/127 of the largest value.
    """
    given = np.abs([gradient(rank, step) for rank in range(size)]).astype(np.float64)
    if codec == "q8":
        largest = given.max(1).sum()
        return np.full(ELEMENTS, 1.01 * 2 * largest / 127 / 2 / size)
    share = {"bf16": 2.0**-8, "trunc16": 2.0**-7}[codec]
    return 1.02 * 2 * share * given.sum(0) / size + 1e-7
