"""Arrays of weighted gradients: the weight is appended as one more element (docs/guides/weights.md)."""

from __future__ import annotations

from typing import Any

import numpy as np


def mean_of(flat: Any, shape: tuple[int, ...], divided: bool) -> Any:
    """Return the mean gradient from a reduced array with its weight appended; `divided`: already by the weight."""
    total = flat[-1]
    body = flat[:-1] if divided or not total > 0 else flat[:-1] / total
    return body.reshape(shape)


def with_ones(results: dict[str, Any]) -> dict[str, Any]:
    """Append the weight 1 to arrays that are means in flight; values still to be combined have their own weight."""
    return {
        name: value if isinstance(value, dict) else np.append(value, np.ones(1, value.dtype))
        for name, value in results.items()
    }


def without_work(results: dict[Any, Any]) -> bool:
    """Return True if no rank had data for an update in flight."""
    return all(isinstance(value, np.ndarray) and value[-1] == 0 for value in results.values())
