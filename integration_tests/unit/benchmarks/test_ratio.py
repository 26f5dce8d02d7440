"""Medians and bootstrap intervals on data whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.examples.benchmarks.harness.ratio import Interval, median_interval


def test_equal_values_leave_no_doubt() -> None:
    interval = median_interval([0.75] * 7)
    assert interval == Interval(0.75, 0.75, 0.75, 7)
    assert interval.spread == 0 and not interval.wide


def test_one_value_is_its_own_interval_but_counts_as_wide() -> None:
    assert median_interval([3.0]) == Interval(3.0, 3.0, 3.0, 1)
    assert median_interval([3.0]).wide


def test_one_outlier_of_nine_moves_the_interval_hardly() -> None:
    interval = median_interval([1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99, 40.0])
    assert interval.median == 1.00 and interval.low >= 0.98 and interval.high <= 1.02


def test_two_camps_give_an_interval_that_spans_both() -> None:
    interval = median_interval([1.0] * 5 + [2.0] * 5)
    assert (interval.low, interval.median, interval.high) == (1.0, 1.5, 2.0)
    assert interval.spread == pytest.approx(1 / 3) and interval.wide


def test_interval_of_many_values_agrees_with_order_statistics() -> None:
    # For n independent values the median lies between the values of rank n/2 -+ 0.98 sqrt(n) in 95 % of all cases.
    values = np.random.default_rng(3).normal(10.0, 1.0, size=401)
    interval = median_interval([float(value) for value in values])
    ordered = np.sort(values)
    assert interval.low == pytest.approx(ordered[181], abs=0.05)
    assert interval.high == pytest.approx(ordered[220], abs=0.05)


def test_intervals_hold_the_true_median_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    samples = [random.exponential(1.0, size=25) for _ in range(300)]
    intervals = [median_interval([float(value) for value in sample]) for sample in samples]
    holding = sum(interval.low <= np.log(2) <= interval.high for interval in intervals)
    assert 0.90 <= holding / len(intervals) <= 0.985


def test_the_same_values_give_the_same_interval() -> None:
    values = [1.0, 1.3, 0.8, 1.1, 0.9, 2.0]
    assert median_interval(values) == median_interval(values)


def test_narrow_needs_enough_values() -> None:
    assert median_interval([1.0, 1.01, 0.99, 1.0]).wide
    assert not median_interval([1.0, 1.01, 0.99, 1.0, 1.0]).wide


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])
