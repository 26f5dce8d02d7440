"""Arrays of gradients with weights: each has its weight as one more element at the end (docs/guides/weights.md)."""

from __future__ import annotations

from typing import Any

import numpy as np


def mean_of(flat: Any, shape: tuple[int, ...], divided: bool) -> Any:
    """Return the gradient in an array that has travelled, with a weight behind it; `divided`: by that already."""
    total = flat[-1]
    body = flat[:-1] if divided or not total > 0 else flat[:-1] / total
    return body.reshape(shape)


def with_ones(results: dict[str, Any]) -> dict[str, Any]:
    """Return arrays, means that are in flight, with the weight 1 behind each; what waits to be combined has its own."""
    return {
        name: value if isinstance(value, dict) else np.append(value, np.ones(1, value.dtype))
        for name, value in results.items()
    }


def without_work(results: dict[Any, Any]) -> bool:
    """Return True if no rank had data for an update that is in flight."""
    return all(isinstance(value, np.ndarray) and value[-1] == 0 for value in results.values())
