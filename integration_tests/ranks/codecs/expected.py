"""Error bounds of codecs for a mean of gradients, and gradients to test them."""

from __future__ import annotations

import numpy as np

from paceline.registry.codecs import CODECS

LOSSY = tuple(name for name, codec in CODECS.items() if codec.error)
ELEMENTS = 1003  # above codec_least_bytes; not a multiple of slices or shards


def gradient(rank: int, step: int = 0) -> np.ndarray:
    """Gradient of a rank: float32 in -1..1."""
    values: np.ndarray = np.random.default_rng([rank, step]).uniform(-1, 1, ELEMENTS).astype(np.float32)
    return values


def mean(size: int, step: int = 0) -> np.ndarray:
    """Exact mean in float64."""
    exact: np.ndarray = np.mean([gradient(rank, step).astype(np.float64) for rank in range(size)], 0)
    return exact


def bound(codec: str, size: int, step: int = 0) -> np.ndarray:
    """Error bound of each element of the mean in a direct exchange, which encodes the ranks' parts and the sum."""
    given = np.abs([gradient(rank, step) for rank in range(size)]).astype(np.float64)
    declared = CODECS[codec]
    if declared.of_largest:
        return np.full(ELEMENTS, 1.01 * 2 * declared.error * given.max(1).sum() / size)
    return 1.02 * 2 * declared.error * given.sum(0) / size + 1e-7
