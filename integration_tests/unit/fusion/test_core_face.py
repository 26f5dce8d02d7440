"""The face of core's costs and planner in Python; what they decide is tested in C++ and, below, in test_planning.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from paceline.core._core import (
    CostModel,
    allreduce_cost,
    fit_linear,
    fit_measured,
    plan,
    plan_armed,
    predict,
    predict_armed,
    predict_stock,
    validate_groups,
)

# The three layers on which MG-WFBP is not optimal, from the loss to the input: bytes, readiness, types.
LAYERS = [3.0, 1.0, 1.0], [1.0, 4.0, 8.0], [0, 0, 0]
COST = CostModel.linear(4, 1)


def test_costs() -> None:
    cost = CostModel.linear(a_s=2e-3, b_s_per_byte=1e-9).plus(1e-3)
    assert (cost.a_s, cost.b_s_per_byte, cost(1e6)) == pytest.approx((3e-3, 1e-9, 4e-3)) and cost.points == []
    curve = CostModel.measured([(4000, 4.0), (1000, 1.0), (2000, 3.0)]).plus(0.5)
    assert curve.points == [(1000, 1.5), (2000, 3.5), (4000, 4.5)] and curve(1500) == 2.5
    samples = [(size, 1e-3 + 2e-9 * size) for size in (1e3, 1e5, 1e7)]
    assert fit_linear(samples) == pytest.approx((1e-3, 2e-9)) and fit_measured(samples).points == samples
    assert allreduce_cost("ring", n=16, alpha=3, beta=5, gamma=7) == pytest.approx((90, 150 / 16 + 105 / 16))


def test_plans() -> None:
    groups = plan("threshold", *LAYERS, COST, threshold_bytes=4)
    assert groups == plan("single", *LAYERS, COST, max_group_bytes=4) == [[0, 1], [2]]
    found = predict(groups, *LAYERS, COST)
    assert (found.starts_s, found.ends_s, found.finish_s, found.exposed_s) == ([4.0, 12.0], [12.0, 17.0], 17.0, 9.0)
    assert plan_armed(*LAYERS, CostModel.linear(2, 0.5), 0.5, 1) == [[0], [1, 2]]
    assert plan_armed(*LAYERS, CostModel.linear(2, 0.5), 0.5, 2, work_s=20) == [[0, 1, 2]]
    armed = predict_armed([[0], [1], [2]], *LAYERS, COST, 0.5, 2)
    assert (armed.starts_s, armed.ends_s) == ([1.0, 4.0, 8.5], [8.5, 9.5, 13.5])
    groups, stock = predict_stock(*LAYERS, COST, coordination_s=0.5, cycle_s=2, threshold_bytes=64 << 20)
    assert (groups, stock.starts_s, stock.ends_s) == ([[0], [1, 2]], [2.5, 10.0], [9.5, 16.0])
    validate_groups([[2, 0], [1]], 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: CostModel.linear(math.nan, 0), "a_s is nan"),
        (lambda: CostModel.measured([]), "there is none"),
        (lambda: CostModel.linear(1, 1).plus(-1), "is -1"),
        (lambda: fit_linear([(4, 1), (4, 2)]), "at least two sizes"),
        (lambda: fit_measured([]), "at least one sample"),
        (lambda: allreduce_cost("star", 4, 1, 1, 1), "'star'; known are: binary-tree"),
        (lambda: plan("best", *LAYERS, COST), "'best'; known are: none, single, threshold, mgwfbp, opt"),
        (lambda: predict([[0, 1]], *LAYERS, COST), "tensor 2 is in no merge group"),
        (lambda: predict_stock(*LAYERS, COST, 0, -1, 0), "cycle_s is -1"),
        (lambda: plan_armed(*LAYERS, COST, -1, 2), "coordination_s is -1"),
        (lambda: predict_armed([[0, 1, 2]], *LAYERS, COST, 0, 0), "together is 0"),
        (lambda: validate_groups([[0], []], 1), "merge group 1 is empty"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
