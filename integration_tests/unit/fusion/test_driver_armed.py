"""The driver where PACELINE_ARMED=yes: plans are made for armed steps as long as steps can be armed.

The gradients are those of test_driver.py: pairs that appear ten milliseconds apart.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from integration_tests.unit.fusion.test_driver import PAIRS, Run, groups_sent, measured
from paceline.fusion import CostModel, driver
from paceline.fusion.armed import ArmedReport
from paceline.fusion.bridge import ControlOp
from paceline.fusion.driver import State
from paceline.fusion.offer import EXPECTED

_EXPECTED = 4  # where a plan that travels has what is expected of it (offer.py)
RUNNING = ArmedReport("armed", "", steps=90, messages=90)
# What tells armed steps from others is a start-up of 12 ms: twice that, which armed plans allow for, is less dear where
# two overlap than one message that waits for all, and that is best where they do not. A gradient takes 1 ms, as does a
# round; the last one comes at 10.1 ms.
SLOW_S = 13e-3
ONE = [0, -1, 0, 0, 0]
# d and c begin at 1.1 ms and end at 15.1; b and a begin at 10.1, and have their start-up behind them at 22.1.
PAIRS_S, ONE_S = 14e-3, 17e-3


def exposed_s(run: Run) -> float:
    """What the plan that was offered last is expected to leave exposed."""
    values = [values for _, kind, values in run.bridge.asked if kind is ControlOp.PLAN][-1]
    return values[_EXPECTED + EXPECTED.index("exposed_s")] - 1


@pytest.mark.parametrize(
    ("wanted", "report", "threshold_bytes"),
    [
        (True, ArmedReport(), 150_000),
        (False, ArmedReport(), 150_000),
        (False, ArmedReport(), 1 << 20),
        (True, ArmedReport("off", steps=200, given_up=3, gave_up=True), 1 << 20),
    ],
    ids=["wanted", "not wanted", "not wanted by all, or a smaller process set", "given up"],
)
def test_first_plan_is_for_armed_steps_where_there_are_some(
    wanted: bool, report: ArmedReport, threshold_bytes: int
) -> None:
    run = Run(armed=wanted, threshold_bytes=threshold_bytes)
    run.bridge.report = report
    run.to(State.OFFERING, measured(start_up_s=SLOW_S))
    armed = wanted and not report.given_up
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
        (ArmedReport("off", steps=90, given_up=3, gave_up=True), State.OFFERING),
    ],
    ids=["armed", "compared anew", "never were", "never fit", "given up"],
)
def test_planning_anew_knows_whether_steps_were_armed(report: ArmedReport, state: State) -> None:
    run = Run(armed=True).to(State.WATCHING)
    assert run.bridge.report == ArmedReport()
    run.bridge.report = report
    run.bridge.answer = measured(start_up_s=SLOW_S)
    assert run.look() is state
    plans = [values for _, kind, values in run.bridge.asked if kind is ControlOp.PLAN]
    groups = list(map(groups_sent, plans))
    assert groups == ([PAIRS] if state is State.ACTIVE else [PAIRS, ONE])


def test_worth_of_the_plan_that_is_followed_is_that_of_armed_steps() -> None:
    pairs = [["d", "c"], ["b", "a"]]
    model = CostModel.linear(4e-3, 1e-8)
    assert driver.predicted_s(pairs, measured(), model, work_s=None) == pytest.approx(7e-3)
    assert driver.predicted_s(pairs, measured(), model, work_s=0.0) == pytest.approx(6e-3)


def test_sizes_are_swept_by_both_collectives_where_all_want_armed_steps() -> None:
    run = Run(armed=True).to(State.SWEEPING)
    (_, first, once), (_, second, more), (_, third, burst) = run.bridge.asked
    assert (first, second, third) == (ControlOp.SWEEP, ControlOp.FAST_SWEEP, ControlOp.BURST)
    assert set(once) == set(more)
    assert len(more) == driver.FAST_TIMES * len(once)
    assert burst == [once[0]] * driver.BURST


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
