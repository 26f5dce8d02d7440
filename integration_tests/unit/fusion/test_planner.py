"""The planner's face in Python. What it decides is tested in C++ (cpp/test_planner*.cc) and on a real trace below."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from paceline.core._core import CostModel, plan, plan_armed, predict, predict_armed, predict_stock, validate_groups

# The three layers on which MG-WFBP is not optimal, from the loss to the input.
BYTES = [3.0, 1.0, 1.0]
READY_S = [1.0, 4.0, 8.0]
TYPES = [0, 0, 0]
COST = CostModel.linear(4, 1)


@pytest.mark.parametrize(
    ("policy", "groups", "finish_s"),
    [
        ("none", [[0], [1], [2]], 18),
        ("single", [[0, 1, 2]], 17),
        ("mgwfbp", [[0, 1], [2]], 17),
        ("optimal", [[0], [1, 2]], 14),
        ("threshold", [[0, 1], [2]], 17),
    ],
)
def test_plans_and_their_ends(policy: str, groups: list[list[int]], finish_s: float) -> None:
    found = plan(policy, BYTES, READY_S, TYPES, COST, threshold_bytes=4)
    assert found == groups
    prediction = predict(found, BYTES, READY_S, TYPES, COST)
    assert prediction.finish_s == prediction.ends_s[-1] == finish_s
    assert prediction.exposed_s == finish_s - 8
    assert len(prediction.starts_s) == len(groups)


def test_plans_for_armed_steps() -> None:
    # Planned for messages that take twice as long.
    assert plan_armed(BYTES, READY_S, TYPES, CostModel.linear(2, 0.5), 0.5, 1) == [[0], [1, 2]]
    assert plan_armed(BYTES, READY_S, TYPES, CostModel.linear(2, 0.5), 0.5, 2, work_s=20) == [[0, 1, 2]]
    groups = plan_armed(BYTES, READY_S, TYPES, COST, 0.5, 2, max_group_bytes=1)
    assert groups == [[0], [1], [2]]
    prediction = predict_armed(groups, BYTES, READY_S, TYPES, COST, 0.5, 2)
    # A round, start-up and bytes of the first; the second's start-up is over by then; the third waits for the first.
    assert (prediction.starts_s, prediction.ends_s) == ([1.0, 4.0, 8.5], [8.5, 9.5, 13.5])


def test_order_of_arguments_does_not_matter() -> None:
    assert plan("optimal", BYTES[::-1], READY_S[::-1], TYPES, COST) == [[2], [1, 0]]


def test_a_limit_of_group_bytes() -> None:
    assert plan("single", BYTES, READY_S, TYPES, COST, max_group_bytes=4) == [[0, 1], [2]]
    assert plan("single", BYTES, READY_S, TYPES, COST, max_group_bytes=1) == [[0], [1], [2]]


def test_stock_loop() -> None:
    groups, prediction = predict_stock(
        BYTES, READY_S, TYPES, COST, coordination_s=0.5, cycle_s=2, threshold_bytes=64 << 20
    )
    # Cycles begin at 0 and 2; the one that begins at 9.5 finds the rest.
    assert groups == [[0], [1, 2]]
    assert prediction.starts_s == [2.5, 10.0]
    assert prediction.ends_s == [9.5, 16.0]
    assert (prediction.finish_s, prediction.exposed_s) == (16.0, 8.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: plan("best", BYTES, READY_S, TYPES, COST), "'best'; known are: none, single, threshold, mgwfbp, opt"),
        (lambda: plan("none", BYTES, READY_S, [0], COST), "3 sizes, 3 times of readiness and 1 types"),
        (lambda: plan("none", [1, math.nan, 1], READY_S, TYPES, COST), "tensor 1 has nan bytes"),
        (lambda: plan("none", BYTES, [0, 0, math.inf], TYPES, COST), "tensor 2 is ready at inf s"),
        (lambda: plan("none", BYTES, READY_S, TYPES, COST, -1), "threshold_bytes is -1"),
        (lambda: predict([[0, 1]], BYTES, READY_S, TYPES, COST), "tensor 2 is in no merge group"),
        (lambda: predict([[0, 1], [2, 0]], BYTES, READY_S, TYPES, COST), "tensor 0 is in two merge groups, 0 and 1"),
        (lambda: predict_stock(BYTES, READY_S, TYPES, COST, 0, -1, 0), "cycle_s is -1"),
        (lambda: plan_armed(BYTES, READY_S, TYPES, COST, -1, 2), "coordination_s is -1"),
        (lambda: predict_armed([[0, 1, 2]], BYTES, READY_S, TYPES, COST, 0, 0), "together is 0"),
        (lambda: validate_groups([[0], []], 1), "merge group 1 is empty"),
        (lambda: validate_groups([[0, -1]], 1), "tensor -1 in merge group 0 does not exist: there are 1 tensors"),
    ],
)
def test_what_cannot_be_planned_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_valid_groups_pass() -> None:
    validate_groups([[2, 0], [1]], 3)
    validate_groups([], 0)
