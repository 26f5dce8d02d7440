"""Cost models from Python: values, fits and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from paceline.core._core import CostModel, allreduce_cost, fit_linear, fit_measured


def test_a_line() -> None:
    cost = CostModel.linear(a_s=2e-3, b_s_per_byte=1e-9)
    assert cost(0) == 2e-3
    assert cost(1_000_000) == pytest.approx(3e-3)
    assert (cost.a_s, cost.b_s_per_byte, cost.points) == (2e-3, 1e-9, [])
    assert cost.plus(1e-3).a_s == pytest.approx(3e-3)
    assert cost.a_s == 2e-3


def test_a_measured_curve() -> None:
    cost = CostModel.measured([(4000, 4.0), (1000, 1.0), (2000, 3.0)])
    assert cost.points == [(1000, 1.0), (2000, 3.0), (4000, 4.0)]
    assert [cost(size) for size in (10, 1500, 3000, 6000)] == [1.0, 2.0, 3.5, 5.0]
    assert cost.plus(0.5).points == [(1000, 1.5), (2000, 3.5), (4000, 4.5)]


def test_fits_tolerate_a_fifth_of_slow_samples() -> None:
    """Every fifth sample is slow by another factor, at small and at large sizes."""
    sizes = [1000 * 2**n for n in range(14)]
    samples = [
        (float(size), (1e-3 + 2e-9 * size) * (1 + 0.01 * ((7 * n + repeat) % 3 - 1)) * (1, 1, 1, 1, 3 + n)[repeat])
        for n, size in enumerate(sizes)
        for repeat in range(5)
    ]
    assert fit_linear(samples) == pytest.approx((1e-3, 2e-9), rel=0.03)
    cost = fit_measured(samples)
    assert [size for size, _ in cost.points] == sizes
    assert (cost.a_s, cost.b_s_per_byte) == pytest.approx((1e-3, 2e-9), rel=0.03)
    assert [cost(size) for size in sizes] == pytest.approx([1e-3 + 2e-9 * size for size in sizes], rel=0.03)
    assert cost(5e7) == pytest.approx(1e-3 + 2e-9 * 5e7, rel=0.05)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("binary-tree", (2 * 3 * 4, (2 * 5 + 7) * 4)),
        ("recursive-doubling", (3 * 4, (5 + 7) * 4)),
        ("recursive-halving-doubling", (2 * 3 * 4, 2 * 5 - (2 * 5 + 7) / 16 + 7)),
        ("double-binary-trees", (2 * 3 * 4, 5 + 7)),
        ("ring", (2 * 15 * 3, 2 * 15 / 16 * 5 + 15 / 16 * 7)),
    ],
)
def test_all_reduces_among_16_workers(algorithm: str, expected: tuple[float, float]) -> None:
    assert allreduce_cost(algorithm, n=16, alpha=3, beta=5, gamma=7) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: CostModel.linear(math.nan, 0), "a_s is nan"),
        (lambda: CostModel.linear(0, -1), "b_s_per_byte is -1"),
        (lambda: CostModel.measured([]), "there is none"),
        (lambda: CostModel.measured([(1, 1), (2, math.inf)]), "measured point 1 is inf"),
        (lambda: CostModel.measured([(1, 1), (1, 2)]), "two measured points have 1 bytes"),
        (lambda: CostModel.measured([(1, 2), (2, 1)]), "falls from 2 s at 1 bytes to 1 s at 2 bytes"),
        (lambda: CostModel.linear(1, 1).plus(-1), "is -1"),
        (lambda: fit_linear([(4, 1), (4, 2)]), "at least two sizes"),
        (lambda: fit_linear([(4, 1), (8, -2)]), "sample 1 is"),
        (lambda: fit_measured([]), "at least one sample"),
        (lambda: allreduce_cost("star", 4, 1, 1, 1), "'star'; known are: binary-tree"),
        (lambda: allreduce_cost("ring", 0, 1, 1, 1), "at least one worker"),
    ],
)
def test_what_is_no_cost_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        call()
