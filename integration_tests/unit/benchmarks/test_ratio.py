"""Medians and bootstrap intervals on data whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.examples.benchmarks.harness.ratio import Interval, median_interval


@pytest.mark.parametrize(
    ("values", "interval", "wide"),
    [
        ([0.75] * 7, (0.75, 0.75, 0.75), False),
        ([3.0], (3.0, 3.0, 3.0), True),
        ([1.0] * 5 + [2.0] * 5, (1.0, 1.5, 2.0), True),
        ([1.0, 1.01, 0.99, 1.0], (0.99, 1.0, 1.01), True),  # too few
        ([1.0, 1.01, 0.99, 1.0, 1.0], (0.99, 1.0, 1.01), False),
        ([1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99, 40.0], (0.99, 1.0, 1.01), False),  # an outlier
    ],
)
def test_intervals(values: list[float], interval: tuple[float, float, float], wide: bool) -> None:
    low, median, high = interval
    found = median_interval(values)
    assert found == median_interval(values) == Interval(found.median, found.low, found.high, len(values))
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high), abs=0.02)
    assert (found.median, found.wide) == (median, wide)


def test_intervals_hold_the_true_median_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    samples = [random.exponential(1.0, size=25) for _ in range(300)]
    intervals = [median_interval([float(value) for value in sample]) for sample in samples]
    holding = sum(interval.low <= np.log(2) <= interval.high for interval in intervals)
    assert 0.90 <= holding / len(intervals) <= 0.985
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])
