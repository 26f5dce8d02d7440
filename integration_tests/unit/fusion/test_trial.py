"""Plans that are held against Horovod's own merging: the sign test, and what the driver asks of the ranks meanwhile."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from integration_tests.unit.fusion.test_driver import LIMITS, Run, measured
from paceline.fusion.bridge import ControlOp, Own
from paceline.fusion.driver import State, tried
from paceline.fusion.resolve import resolve
from paceline.fusion.trial import SIGNIFICANCE, WINDOW_STEPS, Trial

TRYING = replace(LIMITS, trial_steps=100)


def trial_of(outcomes: str, most_steps: int = 100) -> Trial:
    """A trial of pairs in which the plan was ahead ("+", by a tenth) or behind ("-")."""
    trial = Trial(most_steps)
    for outcome in outcomes:
        assert not trial.over
        for _ in range(2):
            planned_s = 0.9 if outcome == "+" else 1.1
            trial.add(planned_s if trial.with_plan else 1.0, WINDOW_STEPS)
    return trial


@pytest.mark.parametrize(
    ("outcomes", "decided", "stays"),
    [
        ("+++++", False, None),
        ("++++++", True, True),
        ("------", True, False),
        ("+-+++++++", True, True),
        ("-+-------", True, False),
        ("+--+-+-++-", False, False),
        ("+-+-+-+-++", False, True),
    ],
)
def test_verdict(outcomes: str, decided: bool, stays: bool | None) -> None:
    trial = trial_of(outcomes)
    assert (trial.decided, trial.over) == (decided, stays is not None)
    if stays is not None:
        assert trial.plan_stays is stays
        assert ("the plan stays" in str(trial)) is stays
        assert ("no difference that is sure" in str(trial)) is not decided


def test_a_lead_is_one_that_chance_gives_as_rarely() -> None:
    for pairs in range(1, 12):
        for wins in range(pairs + 1):
            trial = Trial(10_000, [0.5] * wins + [2.0] * (pairs - wins), [1.0] * pairs)
            extreme = max(wins, pairs - wins)
            ways = sum(math.comb(pairs, n) for n in range(pairs + 1) if max(n, pairs - n) >= extreme)
            assert trial.decided == (min(ways, 2**pairs) / 2**pairs <= SIGNIFICANCE), (wins, pairs)


def test_each_side_is_as_often_first_and_no_trial_is_longer_than_its_steps() -> None:
    trial, order = Trial(100), ""
    while not trial.over:
        order += "P" if trial.with_plan else "S"
        trial.add(1.0, 9)  # a look that comes late finds more steps than a window needs
    assert order.startswith("PSSPPSSP") and len(trial.planned_s) == len(trial.stock_s)
    assert 90 <= trial.steps <= 100 and not trial.plan_stays


def drive(run: Run, planned_s: float, stock_s: float, most: int = 40) -> list[bool]:
    """Let the driver go on while it tries; whether each window was the plan's."""
    windows: list[bool] = []
    while run.driver.state in (State.OFFERING, State.TRYING) and len(windows) < most:
        _, operation, values = run.bridge.asked[-1]
        assert operation is ControlOp.PLAN
        run.bridge.last = Own(0, -1.0, -1.0, -1.0)
        if run.look(1, version=int(values[0])) is not State.TRYING:
            break
        assert run.look(WINDOW_STEPS - 1) is State.TRYING
        windows.append(bool(values[1]))
        run.bridge.last = Own(WINDOW_STEPS, planned_s if values[1] else stock_s, 0.0, 0.0)
        run.look(1)
    return windows


@pytest.mark.parametrize(("planned_s", "state"), [(0.9, State.ACTIVE), (1.1, State.STOCK)])
def test_the_loser_goes(planned_s: float, state: State) -> None:
    run = Run(limits=TRYING).to(State.OFFERING)
    begun = run.status.steps
    windows = drive(run, planned_s, 1.0)
    assert windows == [True, False, False, True] * 3
    assert run.driver.state is state
    assert run.status.steps - begun < 100
    # What all ranks were told last.
    assert bool(run.bridge.asked[-1][2][1]) is (state is State.ACTIVE)
    assert run.lines[1].endswith("the plan stays." if state is State.ACTIVE else "Horovod's own merging stays.")
    assert ("was not ahead" in run.driver.reason) is (state is State.STOCK)


def test_costs_that_drift_bring_another_trial() -> None:
    run = Run(limits=TRYING).to(State.OFFERING)
    drive(run, 1.1, 1.0)
    assert run.driver.state is State.STOCK
    run.bridge.answer = measured()
    assert run.looks(99, 1, 0) == "STOCK WATCHING STOCK", "nothing has changed"
    # Start-ups cost so much now that all gradients go in one message.
    run.bridge.answer = measured(start_up_s=14e-3)
    assert run.looks(100, 0) == "WATCHING OFFERING"
    drive(run, 0.9, 1.0)
    assert run.calls()[-1] is ControlOp.PLAN and bool(run.bridge.asked[-1][2][1])
    assert "planned anew" in run.lines[2] and run.lines[3].endswith("the plan stays.")


def test_a_plan_that_promises_next_to_nothing_is_not_tried() -> None:
    run = Run(limits=TRYING).to(State.STOCK, measured(compute_s=30.0))
    assert ControlOp.PLAN not in run.calls()
    assert "too little to be tried" in run.driver.reason


@pytest.mark.parametrize("state", [State.TRYING, State.STOCK])
def test_ranks_that_disagree_end_a_trial(state: State) -> None:
    run = Run(limits=TRYING).to(State.OFFERING)
    if state is State.STOCK:
        drive(run, 1.1, 1.0)
    else:
        run.look(version=1)
    assert run.driver.state is state
    assert run.look(agreed=False, version=0) is State.AGREEING
    run.bridge.last = Own(0, -1.0, -1.0, -1.0)
    assert run.to(State.OFFERING).driver.state is State.OFFERING


def users(gradients: Any, costs: Any) -> list[list[str]]:
    """A policy of a user's."""
    return [[gradient.name for gradient in gradients]]


def test_what_says_what_is_merged_is_not_tried() -> None:
    assert [name for name in ("none", "single", "mgwfbp", "optimal") if tried(resolve(name))] == ["mgwfbp", "optimal"]
    assert tried(resolve(users))
