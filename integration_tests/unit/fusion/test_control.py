"""Merging once it is switched on: ranks that disagree, costs that drift, and the control that makes drivers."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests.support.debug import debug
from integration_tests.unit.fusion.test_driver import LIMITS, PAIRS, STATUS, FakeBridge, Run, measured, omitting
from paceline import config
from paceline.errors import UserError
from paceline.fusion import CostModel, control, driver
from paceline.fusion.bridge import ControlOp, Measurement
from paceline.fusion.control import Control
from paceline.fusion.driver import DISAGREEMENT_LOOKS, State
from paceline.fusion.resolve import resolve
from paceline.native import world as native_world

RUN = Control._run
# Tests of the others are in test_driver_armed.py.
WITHOUT_TRIAL = [state for state in State if state not in (State.TRYING, State.STOCK)]
FIRST_PLAN = [ControlOp.SWEEP, ControlOp.MEASURE, ControlOp.PLAN]


def test_disagreement_that_lasts_is_reported_once_with_what_each_rank_asks_for() -> None:
    run = Run(omitting, process_set=3, agreed=False)
    optimal = resolve("optimal").digest
    run.bridge.digests = [resolve(omitting).digest, optimal, 12345, 0, None, optimal]
    assert set(run.looks(*[0] * (DISAGREEMENT_LOOKS - 1)).split()) == {"AGREEING"}
    assert (run.lines, run.driver.reason) == ([], "")
    assert set(run.looks(*[1] * 3 * DISAGREEMENT_LOOKS).split()) == {"AGREEING"}
    assert run.driver.reason == (
        "The ranks ask for different policies: omitting on rank 0; optimal on rank 1, 5; another policy on rank 2; "
        "threshold on rank 3; nothing yet on rank 4"
    )
    said = f"{run.driver.reason} in process set 3; Horovod's own merging is used. Give all ranks the same fusion."
    assert run.lines == [said]
    assert run.bridge.asked == []
    assert run.look(agreed=True) is State.WARMING
    assert run.driver.reason == ""
    run.looks(*[0] * (DISAGREEMENT_LOOKS - 1), plans=False)
    assert run.lines == [said]
    run.look(plans=False)
    assert len(run.lines) == 2


@pytest.mark.parametrize("state", [state for state in WITHOUT_TRIAL if state is not State.AGREEING])
def test_disagreement_leads_back_to_agreeing(state: State) -> None:
    run = Run(omitting if state is State.REFUSED else "optimal").to(state)
    calls = run.calls()
    assert run.look(agreed=False, version=0) is State.AGREEING
    assert run.look(100, agreed=True) is State.WARMING
    assert run.driver.reason == ""
    assert run.looks(2, 1) == "WARMING SWEEPING"
    assert run.calls() == [*calls, ControlOp.SWEEP]


def test_versions_grow_whatever_was_there_before() -> None:
    run = Run().to(State.ACTIVE)
    run.look(agreed=False, version=0)
    assert run.to(State.OFFERING).bridge.asked[-1][2][0] == 2
    assert [run.look(version=version) for version in (1, 2)] == [State.OFFERING, State.ACTIVE]
    assert Run(version=7).to(State.OFFERING).bridge.asked[-1][2][0] == 8


@pytest.mark.parametrize("gone", [None, replace(STATUS, serial=2, steps=5000, version=9)], ids=["gone", "another"])
@pytest.mark.parametrize("state", [state for state in WITHOUT_TRIAL if state is not State.REFUSED])
def test_process_set_that_is_gone_is_left_alone(state: State, gone: Any) -> None:
    run = Run()
    run = run if state is State.AGREEING else run.to(state)
    calls, lines = run.calls(), list(run.lines)
    for agreed in [True, False] * DISAGREEMENT_LOOKS:
        run.bridge.sets[0] = gone and replace(gone, agreed=agreed)
        run.driver.look()
    assert (run.driver.state, run.calls(), run.lines) == (state, calls, lines)


def test_plan_is_made_again_where_that_pays() -> None:
    # With a start-up of s ms, the followed pairs end at 2 s + 4.1 and a single message at s + 14.1.
    run = Run().to(State.ACTIVE)
    run.bridge.answer = None
    assert run.looks(99, 1, 50) == "ACTIVE WATCHING WATCHING"
    assert run.calls() == [*FIRST_PLAN, ControlOp.MEASURE]
    run.bridge.answer = measured(start_up_s=14e-3)
    assert run.look() is State.OFFERING
    assert run.calls() == [*FIRST_PLAN, ControlOp.MEASURE, ControlOp.PLAN]
    assert run.bridge.asked[-1][2][0] == 2
    assert run.group_of() == [0, -1, 0, 0, 0]
    assert "fusion=optimal: planned anew, 4 gradients in 1 message" in run.lines[1]
    assert [run.look(version=version) for version in (1, 2)] == [State.OFFERING, State.ACTIVE]
    assert run.to(State.WATCHING).look() is State.OFFERING
    assert run.group_of() == PAIRS
    assert run.bridge.asked[-1][2][0] == 3
    assert len(run.lines) == 3


@pytest.mark.parametrize(
    ("answer", "pays"),
    [
        (measured(), False),
        (measured(start_up_s=12.4e-3), False),  # 2.4 ms of 30 + 18.8
        (measured(start_up_s=12.5e-3), True),  # 2.5 ms of 30 + 19
        (measured(start_up_s=12.5e-3, compute_s=32e-3), False),
        (measured(start_up_s=14e-3, steps=1), False),
        ("the ranks could not measure together", False),
    ],
    ids=["as before", "4.9 %", "5.1 %", "4.9 % of more", "early", "failed"],
)
def test_drift_that_does_not_pay_changes_nothing(answer: Measurement | str, pays: bool) -> None:
    run = Run().to(State.WATCHING)
    run.bridge.answer = answer
    assert run.look() is (State.OFFERING if pays else State.ACTIVE)
    assert run.calls() == [*FIRST_PLAN, ControlOp.MEASURE, *([ControlOp.PLAN] if pays else [])]
    assert len(run.lines) == 1 + pays
    if not pays:
        assert run.looks(99, 1) == "ACTIVE WATCHING"
    unwatched = Run(limits=replace(LIMITS, watch_steps=0)).to(State.ACTIVE)
    assert unwatched.look(100_000) is State.ACTIVE and unwatched.calls() == FIRST_PLAN


def test_policy_that_fails_at_planning_again_keeps_the_last_plan() -> None:
    answers = [[["d", "c"], ["b", "a"]], [["d"]], [["a", "b", "c", "d"]]]

    def fickle(gradients: Any, model: CostModel) -> Any:
        return answers.pop(0)

    run = Run(fickle).to(State.WATCHING)
    run.bridge.answer = measured(start_up_s=14e-3)
    assert run.look() is State.ACTIVE
    assert (run.calls(), run.driver.reason) == ([*FIRST_PLAN, ControlOp.MEASURE], "")
    assert run.lines[1].startswith("fusion=fickle: The fusion policy fickle omits the tensor a and 2 more")
    assert run.lines[1].endswith(" The last plan stays.")
    assert run.looks(100, 0) == "WATCHING OFFERING"
    assert run.bridge.asked[-1][2][0] == 2


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """A library whose bridge is a fake; threads end at once, and the test polls itself."""
    monkeypatch.setattr(control, "Bridge", lambda library: FakeBridge())
    monkeypatch.setattr(native_world, "_processes", {})
    monkeypatch.setattr(Control, "_run", lambda self: None)
    for name in [name for name in os.environ if name.startswith(("PACELINE_", "HOROVOD_"))]:
        monkeypatch.delenv(name)
    return ctypes.CDLL(None)


def switched_on(library: ctypes.CDLL, bridge: FakeBridge) -> Control:
    on = Control(library)
    on.bridge = bridge
    on.choose(resolve("optimal"), LIMITS)
    return on


def test_fault_of_ours_stops_that_driver_only(library: ctypes.CDLL, capfd: pytest.CaptureFixture[str]) -> None:
    bridge = FakeBridge()
    on = switched_on(library, bridge)
    no_number: Any = None
    for steps in (0, 3, 6, 20):
        faulty = replace(STATUS, steps=steps, threshold_bytes=no_number)
        bridge.sets = {0: faulty, 3: replace(STATUS, steps=steps), 4: faulty}
        assert on._look()
    assert (on.drivers[0].state, on.drivers[3].state) == (State.REFUSED, State.MEASURING)
    assert on.drivers[0].reason.startswith("TypeError: '<' not supported")
    said = f"fusion=optimal stopped: {on.drivers[0].reason}. Training goes on; please report this."
    assert capfd.readouterr().err == f"Paceline: {said}\n" * 2
    bridge.sets = {0: faulty}
    assert not on._look()


def test_the_first_of_several_ranks_drives_and_an_old_id_gets_a_new_driver(library: ctypes.CDLL) -> None:
    bridge = FakeBridge()
    bridge.sets = {0: replace(STATUS, rank=1), 1: replace(STATUS, size=1), 2: None, 3: STATUS}
    on = switched_on(library, bridge)
    assert on._look()
    assert list(on.drivers) == [3]
    first = on.drivers[3]
    assert first.state is State.WARMING
    on._look()
    assert on.drivers[3] is first
    bridge.sets[3] = replace(STATUS, serial=2, agreed=False)
    on._look()
    assert (on.drivers[3].serial, on.drivers[3].state) == (2, State.AGREEING)


def test_choosing_again_changes_only_what_differs(library: ctypes.CDLL) -> None:
    bridge = FakeBridge()
    on = switched_on(library, bridge)
    on._look()
    first = on.drivers[0]
    on.choose(resolve("optimal"), LIMITS)
    on._look()
    assert on.drivers[0] is first
    assert bridge.wanted == [resolve("optimal").digest]
    on.choose(resolve("optimal"), replace(LIMITS, watch_steps=5))
    on._look()
    assert on.drivers[0] is not first
    on.choose(resolve("single"), LIMITS)
    assert bridge.wanted[-1] == resolve("single").digest
    on.choose(resolve("threshold"), LIMITS)
    assert bridge.wanted[-1] == 0
    assert not on._look()
    assert on.drivers == {}


def test_thread_looks_often_until_the_plan_is_followed(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = FakeBridge()
    bridge.answer = measured()
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        planned = ControlOp.PLAN in [one[1] for one in bridge.asked]
        bridge.sets[0] = replace(STATUS, steps=30 * len(pauses), version=planned)
        if len(pauses) == 8:
            raise EOFError

    def run(on: Control) -> None:
        with pytest.raises(EOFError):
            RUN(on)

    monkeypatch.setattr(Control, "_run", run)
    monkeypatch.setattr(control, "time", SimpleNamespace(sleep=sleep))
    on = switched_on(library, bridge)
    assert on._thread is not None and on._thread.daemon
    on._thread.join(20)
    assert on.drivers[0].state is State.ACTIVE
    assert pauses == [control.LOOK_S] * 4 + [control.REST_S] * 4


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [("HOROVOD_AUTOTUNE", "--autotune"), ("HOROVOD_DISABLE_GROUP_FUSION", "--disable-group-fusion")],
)
def test_plan_is_refused_where_horovod_merges_in_a_way_of_its_own(
    variable: str, remedy: str, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("", "0"):
        monkeypatch.setenv(variable, value)
        assert control.choose(library, "optimal") == "optimal"
    monkeypatch.setenv(variable, "1")
    beginnings: dict[str, Any] = {
        "fusion=single": lambda: control.choose(library, "single"),
        "fusion=omitting": lambda: control.choose(library, omitting),
        "PACELINE_FUSION=mgwfbp": lambda: control.begin(library, config.read({"PACELINE_FUSION": "mgwfbp"})),
        "fusion=optimal": lambda: control.begin(library, config.read({})),
    }
    for words, begin in beginnings.items():
        with pytest.raises(UserError) as caught:
            begin()
        assert caught.value.problem.startswith(f"{words} and {variable}=1 exclude each other: ")
        assert caught.value.remedy == f"Leave one of them out: horovodrun without {remedy}, or fusion=threshold."
    on = control.chosen(library)
    assert on.policy == resolve("optimal")
    assert on.bridge.wanted == [resolve("optimal").digest]
    control.choose(library, "threshold")
    control.begin(library, config.read({"PACELINE_FUSION": "threshold"}))
    control.begin(library, config.read({}))
    assert on.policy == resolve("threshold")


def test_settings_choose_the_policy_and_the_limits(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    control.begin(library, config.read({}))
    assert control.chosen(library) is None
    constants = debug(
        fusion_warmup_steps=4, fusion_watch_steps=0, fusion_time_limit_s=7, fusion_trial_steps=40, gate_timeout_ms=250
    )
    for name, value in ({"PACELINE_FUSION": "single"} | constants).items():
        monkeypatch.setenv(name, value)
    control.begin(library, config.read())
    on = control.chosen(library)
    assert (on.policy, on._limits) == (resolve("single"), driver.Limits(4, 0, 7, 0.25, 40))
    control.choose(library, "optimal")
    assert control.chosen(library) is on
    assert (on.policy, on._limits) == (resolve("optimal"), driver.Limits(4, 0, 7, 0.25, 40))
    control.begin(library, config.read({}))
    assert on.policy == resolve("optimal")
