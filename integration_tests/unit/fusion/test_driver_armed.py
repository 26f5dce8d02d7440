"""The driver where PACELINE_ARMED=yes: plans are made for armed steps as long as steps can be armed.

The gradients are those of test_driver.py: pairs that appear ten milliseconds apart.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import paceline.bridge
from integration_tests.unit.fusion.test_driver import LIMITS, PAIRS, Run, measured
from paceline.fusion import CostModel, driver
from paceline.fusion.armed import GIVEN_UP, REASONS, TOGETHER, ArmedReport
from paceline.fusion.bridge import ControlOp
from paceline.fusion.driver import State
from paceline.fusion.offer import EXPECTED

ARMED = replace(LIMITS, armed=True)
_EXPECTED = 4  # where a plan that travels has what is expected of it (offer.py)
RUNNING = ArmedReport("armed", "", steps=90, messages=90)
# A message takes 4 ms and 1 ms for each gradient, a round 1 ms. Negotiated, pairs are best, which end at 7.1 and 17.1
# ms. Armed, b ends at 10 + 5 ms, and a, whose start-up is over then, 1 ms later. The last gradient comes at 10.1 ms.
PAIR_AND_TWO = [2, -1, 0, 0, 1]
PAIRS_S, PAIR_AND_TWO_S = 7e-3, 5.9e-3


def exposed_s(run: Run) -> float:
    """What the plan that was offered last is expected to leave exposed."""
    values = [values for _, kind, values in run.bridge.asked if kind is ControlOp.PLAN][-1]
    return values[_EXPECTED + EXPECTED.index("exposed_s")] - 1


def test_planner_and_library_mean_the_same_number_of_messages() -> None:
    header = Path(str(paceline.bridge.__file__)).with_name("armed") / "armed.h"
    (together,) = re.findall(r"kTogether = (\d+);", header.read_text())
    assert int(together) == TOGETHER


def test_first_plan_is_for_armed_steps() -> None:
    armed, negotiated = Run(limits=ARMED).to(State.OFFERING), Run().to(State.OFFERING)
    assert (armed.group_of(), negotiated.group_of()) == (PAIR_AND_TWO, PAIRS)
    assert exposed_s(armed) == pytest.approx(PAIR_AND_TWO_S)
    assert exposed_s(negotiated) == pytest.approx(PAIRS_S)
    assert "4 gradients in 3 messages, armed, expected step" in armed.lines[0]
    assert "armed" not in negotiated.lines[0]


@pytest.mark.parametrize(
    ("process_set", "report"),
    [(3, ArmedReport()), (0, ArmedReport("off", GIVEN_UP, steps=200, given_up=3))],
    ids=["smaller process set", "given up"],
)
def test_plan_is_not_for_armed_steps_where_there_are_none(process_set: int, report: ArmedReport) -> None:
    run = Run(process_set=process_set, limits=ARMED, threshold_bytes=1 << 20)
    run.bridge.report = report
    run.to(State.OFFERING)
    assert run.group_of() == PAIRS
    assert exposed_s(run) == pytest.approx(PAIRS_S)


@pytest.mark.parametrize(
    ("report", "groups"),
    [
        (RUNNING, PAIR_AND_TWO),
        (replace(RUNNING, state="watching", reason=REASONS[6]), PAIR_AND_TWO),
        (ArmedReport(), PAIRS),
        (ArmedReport("watching", REASONS[7]), PAIRS),
        (ArmedReport("off", GIVEN_UP, steps=90, given_up=3), PAIRS),
    ],
    ids=["armed", "compared anew", "another rank does not want it", "never fit", "given up"],
)
def test_planning_anew_knows_whether_steps_were_armed(report: ArmedReport, groups: list[int]) -> None:
    # A start-up of 30 ms is for one message; then the network is a faster one.
    run = Run(limits=ARMED).to(State.WATCHING)
    run.bridge.report = report
    run.bridge.answer = measured(start_up_s=30e-3)
    assert run.look() is State.OFFERING
    assert run.group_of() == [0, -1, 0, 0, 0]
    run.to(State.WATCHING)
    run.bridge.answer = measured()
    assert run.look() is State.OFFERING
    assert run.group_of() == groups


def test_worth_of_the_plan_that_is_followed_is_that_of_armed_steps() -> None:
    pairs = [["d", "c"], ["b", "a"]]
    model = CostModel.linear(4e-3, 1e-8)
    assert driver.predicted_s(pairs, measured(), model, armed=False) == pytest.approx(PAIRS_S)
    assert driver.predicted_s(pairs, measured(), model, armed=True) == pytest.approx(PAIRS_S - 1e-3)


def test_costs_come_from_sweeps_once_messages_overlap() -> None:
    run = Run(limits=ARMED).to(State.WATCHING)
    run.bridge.report = RUNNING
    # Messages of armed steps seem to have no start-up.
    found = measured(start_up_s=14e-3)
    run.bridge.answer = replace(found, samples=found.sweeps + [(2e5, 2e-3), (3e5, 3e-3), (4e5, 4e-3), (5e5, 5e-3)] * 9)
    assert run.look() is State.OFFERING
    assert run.group_of() == [0, -1, 0, 0, 0]
    with_them = Run().to(State.WATCHING)
    with_them.bridge.answer = run.bridge.answer
    assert with_them.look() is State.ACTIVE
