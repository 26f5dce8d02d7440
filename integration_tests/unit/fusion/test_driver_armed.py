"""The driver with plans for armed steps, and with plans on trial.

The gradients are those of test_driver.py: pairs that appear ten milliseconds apart.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from integration_tests.unit.fusion.test_driver import LIMITS, PAIRS, Run, groups_sent, measured
from paceline.fusion import CostModel, driver
from paceline.fusion.armed import ArmedReport
from paceline.fusion.bridge import ControlOp, Own
from paceline.fusion.driver import State, tried
from paceline.fusion.offer import EXPECTED
from paceline.fusion.resolve import resolve
from paceline.fusion.trial import SIGNIFICANCE, WINDOW_STEPS, Trial
from paceline.registry import collectives

_EXPECTED = 4  # index of the expectations in a plan message (offer.py)
RUNNING = ArmedReport("armed", "", steps=90, messages=90)
# A start-up of 12 ms distinguishes armed steps from others. Armed plans assume twice that. Two groups that overlap then
# cost less than one message that waits for all; one message is best if they do not overlap. A gradient takes 1 ms, as
# does a round; the last one arrives at 10.1 ms.
SLOW_S = 13e-3
ONE = [0, -1, 0, 0, 0]
# d and c begin at 1.1 ms and end at 15.1; b and a begin at 10.1, and their start-up ends at 22.1.
PAIRS_S, ONE_S = 14e-3, 17e-3


def exposed_s(run: Run) -> float:
    """Exposed seconds expected of the plan that was offered last."""
    values = [values for _, kind, values in run.bridge.asked if kind is ControlOp.PLAN][-1]
    return values[_EXPECTED + EXPECTED.index("exposed_s")] - 1


@pytest.mark.parametrize(
    ("wanted", "report", "threshold_bytes"),
    [
        (True, ArmedReport(), 150_000),
        (False, ArmedReport(), 150_000),
        (False, ArmedReport(), 1 << 20),
        (True, ArmedReport("off", steps=200, fallbacks=3, too_many_fallbacks=True), 1 << 20),
    ],
    ids=["wanted", "not wanted", "not wanted by all, or a smaller process set", "given up"],
)
def test_first_plan_is_for_armed_steps(wanted: bool, report: ArmedReport, threshold_bytes: int) -> None:
    run = Run(armed=wanted, threshold_bytes=threshold_bytes)
    run.bridge.report = report
    run.to(State.OFFERING, measured(start_up_s=SLOW_S))
    armed = wanted and not report.fallbacks
    assert run.group_of() == (PAIRS if armed else ONE)
    assert exposed_s(run) == pytest.approx(PAIRS_S if armed else ONE_S)
    assert ("4 gradients in 2 messages, armed, expected step" in run.lines[0]) == armed
    assert ("armed" in run.lines[0]) == armed


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (RUNNING, State.ACTIVE),
        (replace(RUNNING, state="watching", reason="steps differed"), State.ACTIVE),
        (ArmedReport(), State.OFFERING),
        (ArmedReport("watching", "unfit"), State.OFFERING),
        (ArmedReport("off", steps=90, fallbacks=3, too_many_fallbacks=True), State.OFFERING),
    ],
    ids=["armed", "compared anew", "never were", "never fit", "given up"],
)
def test_planning_again_knows_whether_steps_were_armed(report: ArmedReport, state: State) -> None:
    run = Run(armed=True).to(State.WATCHING)
    assert run.bridge.report == ArmedReport()
    run.bridge.report = report
    run.bridge.answer = measured(start_up_s=SLOW_S)
    assert run.look() is state
    plans = [values for _, kind, values in run.bridge.asked if kind is ControlOp.PLAN]
    groups = list(map(groups_sent, plans))
    assert groups == ([PAIRS] if state is State.ACTIVE else [PAIRS, ONE])


def test_sweeps_and_worth_of_plans_of_armed_steps() -> None:
    run = Run(armed=True).to(State.SWEEPING)
    (_, first, once), (_, second, more), (_, third, burst) = run.bridge.asked
    assert (first, second, third) == (ControlOp.SWEEP, ControlOp.FAST_SWEEP, ControlOp.BURST)
    assert set(once) == set(more)
    assert len(more) == driver.FAST_TIMES * len(once)
    assert burst == [once[0]] * driver.BURST
    # Trials of collectives (auto_choice.h: kTrials of each) end before the burst, because trials run one by one.
    assert more.count(burst[0]) >= 3 * len(collectives.OWN)
    # Worth of the plan that is followed is that of armed steps.
    pairs = [["d", "c"], ["b", "a"]]
    model = CostModel.linear(4e-3, 1e-8)
    assert driver.predicted_s(pairs, measured(), model, work_s=None) == pytest.approx(7e-3)
    assert driver.predicted_s(pairs, measured(), model, work_s=0.0) == pytest.approx(6e-3)


def test_work_of_a_start_up_is_what_a_burst_takes_for_each_message() -> None:
    model = CostModel.linear(4e-3, 1e-8)
    alone_s, others = model(4096), driver.BURST - 1
    before = [(4096.0, 1.0)] * 30  # another burst
    burst = [(4096.0, alone_s + (0.2e-3 + 4096e-8) * others)] * driver.BURST
    assert driver.work_s(measured(burst=before + burst), model) == pytest.approx(0.2e-3)
    assert driver.work_s(measured(burst=[(4096.0, alone_s)] * driver.BURST), model) == 0
    assert driver.work_s(measured(), model) == 0
    # All of a start-up is work, and nothing overlaps.
    slow = measured(start_up_s=SLOW_S)
    working = [(4096.0, 12e-3 * driver.BURST)] * driver.BURST
    assert Run(armed=True).to(State.OFFERING, slow).group_of() == PAIRS
    assert Run(armed=True).to(State.OFFERING, replace(slow, burst=working)).group_of() == ONE


def test_costs_of_plans_are_those_of_the_collective_of_armed_steps() -> None:
    # Messages of armed steps seem to have no start-up, and two of three sweeps went by a collective on trial.
    found, quick = measured(start_up_s=9e-3), measured().sweeps
    overlapping = [(2e5, 2e-3), (3e5, 3e-3), (4e5, 4e-3), (5e5, 5e-3)] * 9
    tried = [(size, 9 * seconds) for size, seconds in found.sweeps]
    answer = replace(found, samples=quick + overlapping, sweeps=quick, fast_sweeps=tried + found.fast_sweeps + tried)
    start_ups = []
    for armed in (True, False):
        run = Run(armed=armed).to(State.OFFERING, answer)
        values = run.bridge.asked[-1][2]
        start_ups.append(values[_EXPECTED + EXPECTED.index("a_s")] - 1)
    assert start_ups == [pytest.approx(8e-3), pytest.approx(4e-3, abs=2e-4)]


def test_stock_is_predicted_by_what_its_own_messages_cost() -> None:
    run = Run(armed=True).to(State.MEASURING)
    run.bridge.answer = replace(measured(), fast_sweeps=measured(start_up_s=2e-3).sweeps)
    same = Run(armed=True).to(State.MEASURING)
    same.bridge.answer = measured()
    assert (run.look(), same.look()) == (State.OFFERING, State.OFFERING)
    stock, other = (re.findall(r"merging \((.*) ms\)", one.lines[0]) for one in (run, same))
    assert stock == other and len(stock) == 1
    assert exposed_s(run) < exposed_s(same)


TRYING = replace(LIMITS, trial_steps=100)


def trial_of(outcomes: str, most_steps: int = 100) -> Trial:
    """A trial of pairs in which the plan was faster ("+", by a tenth) or slower ("-")."""
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
        trial.add(1.0, 9)  # a late poll finds more steps than a window needs
    assert order.startswith("PSSPPSSP") and len(trial.planned_s) == len(trial.stock_s)
    assert 90 <= trial.steps <= 100 and not trial.plan_stays


def drive(run: Run, planned_s: float, stock_s: float, most: int = 40) -> list[bool]:
    """Run the driver while it tries; return for each window whether it was the plan's."""
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
    # The last plan message to all ranks.
    assert bool(run.bridge.asked[-1][2][1]) is (state is State.ACTIVE)
    assert run.lines[1].endswith("the plan stays." if state is State.ACTIVE else "Horovod's own merging stays.")
    assert ("was not ahead" in run.driver.reason) is (state is State.STOCK)


def test_costs_that_drift_bring_another_trial() -> None:
    run = Run(limits=TRYING).to(State.OFFERING)
    drive(run, 1.1, 1.0)
    assert run.driver.state is State.STOCK
    run.bridge.answer = measured()
    assert run.looks(99, 1, 0) == "STOCK WATCHING STOCK", "nothing has changed"
    # Start-ups now cost so much that one message for all gradients is best.
    run.bridge.answer = measured(start_up_s=14e-3)
    assert run.looks(100, 0) == "WATCHING OFFERING"
    drive(run, 0.9, 1.0)
    assert run.calls()[-1] is ControlOp.PLAN and bool(run.bridge.asked[-1][2][1])
    assert "planned again" in run.lines[2] and run.lines[3].endswith("the plan stays.")


def test_what_promises_next_to_nothing_or_says_what_is_merged_is_not_tried() -> None:
    run = Run(limits=TRYING).to(State.STOCK, measured(compute_s=30.0))
    assert ControlOp.PLAN not in run.calls()
    assert "too little to be tried" in run.driver.reason
    # Plans that only state groups are not tried.
    assert [name for name in ("none", "single", "mgwfbp", "optimal") if tried(resolve(name))] == ["mgwfbp", "optimal"]
    assert tried(resolve(users))


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
    return [[gradient.name for gradient in gradients]]
