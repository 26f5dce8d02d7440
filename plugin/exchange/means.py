"""Means of numbers over ranks, weighted by the work behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NAME = "paceline.mean"


def weighted_mean(average: Callable[[Array], Array], values: Any, weight: Any) -> Array:
    """Return sum(w v) / sum(w) over the ranks, in float64 and of the values' shape; NaN where all weights are 0.

    `average` returns the mean of an array over the ranks. A value of weight 0 may be NaN. Raises ValueError for a
    weight that is negative or not finite.
    """
    found, w = np.asarray(values, np.float64), float(weight)
    if not 0 <= w < np.inf:
        raise ValueError(f"weight={weight!r} cannot be used; expected a finite number >= 0.")
    sums = average(np.append(found.ravel() * w if w else np.zeros(found.size), w))
    with np.errstate(invalid="ignore"):
        mean: Array = sums[:-1] / sums[-1]
    return mean.reshape(found.shape)
