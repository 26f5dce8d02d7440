"""From measured ranks to figures, simulations, tables and pictures of `python -m examples.benchmarks scale`."""

from __future__ import annotations

import _thread
import io
import json
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from integration_tests.unit.bench.scale_results import (
    CASE,
    CONSTANTS,
    MESSAGE_S,
    compared,
    coordination_s,
    last,
    results,
)
from paceline.examples.benchmarks.scale import memory, messages, plans, plot, systems, table, threads
from paceline.examples.benchmarks.scale.cases import Case
from paceline.examples.benchmarks.scale.prediction import ring, time_s, told
from paceline.examples.benchmarks.scale.simulated import RANKS, simulate
from paceline.examples.benchmarks.scale.worlds import ScaleRun
from paceline.launch.record.plot import save
from paceline.record.trace import Arrival, Collective, Step


def test_figures_are_per_step() -> None:
    (found,) = results(4)
    cached = found["systems"]["cached"]
    expected_ms = 1e3 * coordination_s("cached", 4)
    assert cached["coordination_ms"]["median"] == pytest.approx(expected_ms, abs=1e-3)  # without waiting for others
    assert cached["message_ms"]["median"] == pytest.approx(1e3 * CASE.parts * MESSAGE_S)
    assert cached["step_ms"]["median"] == pytest.approx(expected_ms + 0.8, abs=1e-3)
    assert (cached["cpu_ms_per_step"], cached["background_cpu_ms_per_step"], cached["wakeups_per_step"]) == (2, 1, 20)
    assert (cached["coordination_rounds_per_step"], cached["messages_per_step"]) == (5, 4)
    assert (cached["rest_wakeups_per_s"], cached["rest_background_wakeups_per_s"]) == (200, 2)
    assert (cached["rest_cpu_ms_per_s"], cached["turns"], cached["steps"]) == (10, 5, 25)
    assert set(found["ratios"]) == {"uncached_over_cached", "events_over_cached", "armed_over_cached"}
    assert found["ratios"]["armed_over_cached"]["median"] < 1 < found["ratios"]["uncached_over_cached"]["median"]
    json.dumps(found)


def test_without_hook_points_figures_are_null_and_nothing_is_simulated() -> None:
    found = results(2, 4, 8, hooks=False)
    for result in found:
        assert set(result["systems"]) == {"uncached", "cached"}
        for system in result["systems"].values():
            counted = ("coordination_ms", "message_ms", "coordination_rounds_per_step", "messages_per_step")
            assert [system[name] for name in counted] == [None] * 4
            assert system["step_ms"]["median"] > 0 and system["background_cpu_ms_per_step"] == 1
    assert last(found)["systems"] == {"uncached": None, "cached": None}
    assert "-" in printed(found[0]) and "-" in printed(last(found))


def test_constants_are_those_that_were_measured_and_more_ranks_follow() -> None:
    found = last(results(2, 4, 8, 16, 32), "50us", 5e-5)
    cached, events, armed = (found["systems"][name] for name in ("cached", "events", "armed"))
    assert (cached["fixed_us"], cached["hop_us"], cached["message_us"]) == pytest.approx((500, 20, 10), rel=0.02)
    assert cached["fit_error"] < 0.01
    assert set(cached["simulated_ms"]) == {str(ranks) for ranks in RANKS} and max(RANKS) == 4096
    expected_ms = 1e3 * CASE.parts * time_s(ring(4096), CONSTANTS["cached"], 5e-5)
    assert cached["simulated_ms"]["4096"] == pytest.approx(expected_ms, rel=0.02)
    once_ms = 1e3 * time_s(told(4096), CONSTANTS["armed"], 5e-5)
    assert armed["simulated_ms"]["4096"] == pytest.approx(once_ms, rel=0.02)
    assert events["simulated_ms"]["4096"] == pytest.approx(CASE.parts * once_ms, rel=0.02)
    assert set(cached["fitted_ms"]) == {"2", "4", "8", "16", "32"}
    json.dumps(found)


def test_two_numbers_of_ranks_are_too_few_for_constants() -> None:
    assert set(last(results(2, 4))["systems"].values()) == {None}


def test_times_that_do_not_grow_with_ranks_say_nothing_of_more() -> None:
    falling_s = {ranks: 0.1 / ranks for ranks in (2, 4, 8, 16)}
    assert simulate(systems.find("cached"), 4, falling_s, 2, 0.0) is None


def printed(result: dict[str, object]) -> str:
    out = io.StringIO()
    Console(file=out, width=250).print(table.as_table(result))
    return out.getvalue()


def test_tables_have_a_row_for_each_system() -> None:
    found = results(2, 4, 8)
    found[0]["skipped"] = {"armed": "it cannot"}
    shown = printed(found[0])
    assert "2 ranks on this machine, per step of 10 tensors of 256 bytes in 4 parts" in shown
    assert "armed is left out: it cannot" in shown and "uncached" in shown
    shown = printed(last(found, "50us", 5e-5))
    assert "50us one way" in shown and "4096 ranks" in shown and "10,000" in shown


@pytest.mark.parametrize("sizes", [(2, 4, 8, 16), (2,)])
def test_a_picture_is_drawn_also_where_nothing_is_simulated(sizes: tuple[int, ...], tmp_path: Path) -> None:
    found = results(*sizes)
    save(plot.scale_figure(found, last(found)), tmp_path / "scale.png")
    assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")


def test_turns_end_when_step_times_are_known() -> None:
    assert compared(2).settled and not compared(2, turns=4).settled


def test_a_run_without_messages_has_no_coordination() -> None:
    run = compared(2, hooks=False).runs["cached"][0]
    assert isinstance(run, ScaleRun) and run.coordination_ms is None and run.message_ms is None


def test_names_stand_for_parts_in_their_order() -> None:
    names = CASE.names
    assert [len(part) for part in names] == [3, 3, 2, 2]
    flat = [name for part in names for name in part]
    assert flat == sorted(flat) and len(set(flat)) == 10


def test_coordination_is_time_in_which_nothing_travels() -> None:
    def message(tensors: tuple[int, ...], start_s: float, end_s: float) -> Collective:
        return Collective("allreduce", tensors, 4, start_s, end_s)

    arrivals = tuple(Arrival(tensor, at_s) for tensor, at_s in ((0, 1.0), (1, 2.0), (2, 2.5), (3, 10.0)))
    travelled = (message((3,), 10.5, 11.0), message((0, 1), 3.0, 6.0), message((2,), 6.25, 7.0))
    before = message((), -1.0, 0.5)  # of a step before the recording
    steps = [Step(0, 1.0, arrivals, (*travelled, before), 1)]
    assert list(messages.times_s(steps)) == [((1.0, 3.0), (0.25, 0.75), (0.5, 0.5))]


def test_the_first_thread_that_is_not_pythons_own_is_the_background_thread() -> None:
    before, ends = threads.tasks(), [threading.Lock() for _ in range(2)]
    own = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)
    own.start()
    with pytest.raises(RuntimeError, match="no background thread"):
        threads.background(before)
    for end in ends:
        end.acquire()
    try:
        # threading knows nothing of those.
        started = []
        for end in ends:
            _thread.start_new_thread(end.acquire, ())
            started.append(threads.tasks() - before)
        (first,) = started[0] - {own.native_id}
        assert threads.background(before) == first
    finally:
        for end in ends:
            end.release()


def test_a_thread_that_sleeps_is_woken() -> None:
    first = threads.thread(threading.get_native_id())
    for _ in range(5):
        time.sleep(0.001)
    used = threads.thread(threading.get_native_id()).since(first)
    assert used.wakeups >= 5 and used.cpu_s >= 0 and threads.process().wakeups > 0


def test_bytes_of_plans_follow_the_encoding() -> None:
    found = {tensors: plans.of(tensors) for tensors in plans.TENSORS}
    assert [(one.messages, one.sent_bytes) for one in found.values()] == [(7, 1696), (63, 16096), (625, 160096)]
    # A short name is inside of its string, a long one outside.
    assert plans.held_bytes([["short"] * 2]) == 2 * 40 + 32
    assert plans.held_bytes([["n" * 20], ["s"]]) == 2 * 40 + 2 * 32 + 21
    assert found[10000].held_bytes > 99 * found[100].held_bytes


def test_systems_differ_in_variables_and_in_what_they_count() -> None:
    env = {name: system.variables("/there") for name, system in systems.SYSTEMS.items()}
    assert env["uncached"]["HOROVOD_CACHE_CAPACITY"] == "0" and env["cached"]["PACELINE_WAKE"] == "cycle"
    assert env["events"]["PACELINE_WAKE"] == "events" and env["events"]["PACELINE_ARMED"] == "no"
    assert env["armed"]["PACELINE_ARMED"] == "yes" and env["armed"]["PACELINE_FUSION"] == "file:/there/plan.json"
    assert [system.coordinations(4) for system in systems.SYSTEMS.values()] == [4, 4, 4, 1]


def test_without_paceline_s_horovod_its_systems_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "built_from", lambda: None)
    assert not systems.find("cached").refusal() and "paceline horovod install" in systems.find("events").refusal()


def test_memory_grows_with_ranks_and_systems() -> None:
    assert memory.needed_bytes(32, 4) == 4 * memory.needed_bytes(32, 1) > 2 * memory.needed_bytes(16, 4) * 0.9
    assert memory.available_bytes() > 0
    assert Case(64, 4, 256).tensors == 64
