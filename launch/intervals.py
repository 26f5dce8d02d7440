"""Medians with bootstrap intervals: precision of measurements on a shared machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 4000
SEED = 20170417  # fixed: equal measurements give equal intervals
NARROW = 0.05  # relative to the median: a narrower interval is good enough
FEWEST = 5  # a bootstrap of fewer values seems far more certain than it is


@dataclass(frozen=True)
class Interval:
    """The median of `count` values, and the interval that holds the true median with 95 % confidence."""

    median: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Largest distance of the interval's ends from the median, relative to it: 0.05 is 5 %."""
        reach = max(self.high - self.median, self.median - self.low)
        return reach / abs(self.median) if self.median else (0.0 if reach == 0 else float("inf"))

    @property
    def wide(self) -> bool:
        """True if the figure is not reliable: too few values, or an interval beyond 5 % of the median."""
        return self.count < FEWEST or self.spread > NARROW


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of `values` and its percentile bootstrap interval. Raises ValueError for no values."""
    if not values:
        raise ValueError("a median needs at least one value")
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(data), size=(RESAMPLES, len(data)))
    medians = np.median(data[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(np.median(data)), float(low), float(high), len(data))
