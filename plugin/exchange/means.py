"""Weighted means of numbers over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from paceline.errors import UsageError

Array = np.ndarray[Any, Any]
NAME = "paceline.mean"


def weighted_mean(average: Callable[[Array], Array], values: Any, weight: Any) -> Array:
    """Return sum(w v) / sum(w) over the ranks, in float64 and of the values' shape; NaN where all weights are 0.

    `average` returns the mean of an array over the ranks. A value of weight 0 may be NaN. Raises UsageError for a
    weight that is negative or not finite.
    """
    found, w = np.asarray(values, np.float64), float(weight)
    if not 0 <= w < np.inf:
        raise UsageError(
            f"hvd.mean(): weight={weight!r} cannot be used.",
            "Use a finite number >= 0: the samples or tokens behind the value.",
        )
    sums = average(np.append(found.ravel() * w if w else np.zeros(found.size), w))
    with np.errstate(invalid="ignore"):
        mean: Array = sums[:-1] / sums[-1]
    return mean.reshape(found.shape)


def mean_of_arrays(average: Callable[[Array, str], Array]) -> Callable[..., Any]:
    """Return `mean` of one adapter, whose `average` returns the mean of an array over all ranks under a name."""

    def mean(value: Any, weight: Any = 1, name: str = NAME) -> Any:
        """Return the weighted mean of `value` over all ranks, sum(w v) / sum(w), such as a loss over samples.

        All ranks must call it, eagerly.

        Args:
            value: a number, array or tensor.
            weight: this rank's weight w, such as its number of samples; 0 on ranks without data.
            name: name of the operation. Means that may be in flight at the same time need different names.

        Returns:
            A number for a number, else a float64 array of the value's shape; NaN if all weights are 0.

        Raises:
            UsageError: for a weight that is negative or not finite.
        """
        found = weighted_mean(lambda values: average(values, name), value, weight)
        return found.item() if found.ndim == 0 else found

    return mean
