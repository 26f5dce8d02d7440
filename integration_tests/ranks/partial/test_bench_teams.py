"""Systems as teams of ranks over loopback: they take turns, stand still in between, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.benchmarks.harness import systems, team, turns
from paceline.examples.benchmarks.harness.assignment import Assignment
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.merging import Merging, Plan
from paceline.examples.benchmarks.harness.systems import Running, System
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.team_run import TeamRun
from paceline.examples.benchmarks.networks.network import Network

pytestmark = pytest.mark.more

END_LIMIT_S = 20.0


def made_here(name: str, averages: bool = False, age: int = 0) -> System:
    """A system whose setup function is in this file."""
    return System(name, f"{__name__}:{name}", {"PYTHONPATH": str(ROOT)}, averages, age)


def fails_to_connect(network: Network, assignment: Assignment) -> Running:
    if assignment.rank == 1:
        raise ConnectionError("the cable is cut")
    return never_ready(network, assignment)


def never_ready(network: Network, assignment: Assignment) -> Running:
    time.sleep(300)
    raise AssertionError("unreachable")


def does_not_average(network: Network, assignment: Assignment) -> Running:
    return Running(lambda: network().backward())


def comes_a_step_late(network: Network, assignment: Assignment) -> Running:
    """A single rank's: gradients of the step before, and how many steps were made as a counter."""
    before = [torch.zeros_like(parameter) for parameter in network.parameters()]
    steps = [0]

    def step() -> None:
        nonlocal before
        network.zero_grad(set_to_none=True)
        network().backward()
        now = [parameter.grad.clone() for parameter in network.parameters()]
        for parameter, old in zip(network.parameters(), before, strict=True):
            parameter.grad.copy_(old)
        before = now
        steps[0] += 1

    return Running(step, lambda: {"coordination_rounds": 0, "messages": steps[0], "bytes": 0})


def averages_at_once(network: Network, assignment: Assignment) -> Running:
    """A single rank's."""

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()

    return Running(step)


def dies_in_its_turn(network: Network, assignment: Assignment) -> Running:
    steps = iter(range(8))

    def step() -> None:
        if next(steps) == 5 and assignment.rank == 2:
            print("no more paper", flush=True)
            os._exit(7)

    return Running(step)


def merges(steps: list[int], states: dict[range, str]) -> Running:
    """A system that only claims to merge: its state by the number of steps made, which its reports tell."""

    def step() -> None:
        steps[0] += 1

    def merging() -> Merging:
        state = next((state for when, state in states.items() if steps[0] in when), "active")
        plan = Plan(steps[0], 0, (), 0.0, 0.0, 0.0, 1e-3, 0.0, 2e-3) if state == "active" else None
        return Merging("optimal", state, f"step {steps[0]}", plan)

    return Running(step, merging=merging)


def plans_when_it_likes(network: Network, assignment: Assignment) -> Running:
    return merges([0], {range(8 + 5 * assignment.rank): "warming", range(26, 33): "sweeping"})


def refuses_to_merge(network: Network, assignment: Assignment) -> Running:
    return merges([0], {range(4, 10**6): "refused"} if assignment.rank == 1 else {range(6): "warming"})


def loses_a_gradient_once_it_merges(network: Network, assignment: Assignment) -> Running:
    steps = [0]
    running = merges(steps, {range(7): "warming"})

    def step() -> None:
        running.step()
        network.zero_grad(set_to_none=True)
        network().backward()
        if steps[0] > 7:
            list(network.parameters())[2].grad.zero_()

    return replace(running, step=step)


def reasons(run: TeamRun) -> list[str]:
    """What each rank's merging reported at the end of a turn."""
    return [rank.merging.reason for rank in run.ranks if rank.merging]


def ended(pids: list[int]) -> bool:
    """Whether all these processes end within the limit."""
    deadline = time.monotonic() + END_LIMIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def refusal(system: System, size: int) -> str:
    """What the user is told when two runs of `system` fail; no process may be left."""
    started = Team(system, "mini", size, Loopback())
    with pytest.raises(UserError) as caught, started:
        started.run(2)
        started.run(2)
    assert ended([process.pid for process in started.crew._processes])
    return str(caught.value)


@pytest.mark.soak
def test_baseline_prints_one_line_of_json_with_all_systems() -> None:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "baseline", "--hosts", "1", "--np", "2"]
    done = subprocess.run(
        [*command, "--model", "mini", "--turns", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["systems"]) == ["horovod", "ddp", "alone"]
    assert (result["hosts"], result["ranks"], result["rate"]) == (1, 2, None)
    for system in result["systems"].values():
        assert system["step_ms"]["low"] <= system["step_ms"]["median"] <= system["step_ms"]["high"]
        assert system["step_ms"]["low"] >= result["forward_ms"] + result["backward_ms"]
        assert system["cpu_ms_per_step"] > 0 and system["wakeups_per_step"] > 0
    # Every gradient goes once into a message, whoever sends it.
    gradient_bytes = 4 * result["parameters"]
    for name in ("horovod", "ddp"):
        assert result["systems"][name]["bytes_per_step"] == gradient_bytes
        assert 1 <= result["systems"][name]["messages_per_step"] <= result["tensors"]
    assert result["systems"]["horovod"]["coordination_rounds_per_step"] > 0
    assert result["ratios"]["ddp_over_horovod"]["turns"] == 2 and result["ratios"]["ddp_over_horovod"]["wide"]
    assert result["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert "--np 2" in result["command"] and "--model mini" in result["command"]


@pytest.mark.soak
@pytest.mark.parametrize("name", ["horovod", "ddp"])
def test_three_ranks_stand_still_between_turns_and_go_on(name: str) -> None:
    with Team(systems.find(name), "mini", 3, Loopback()) as started:
        pids = started.crew.pids
        for steps in (3, 5):
            assert len(started.run(steps).ranks) == 3

            def used() -> list[list[str]]:
                return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]

            before = used()
            time.sleep(0.3)  # hundreds of Horovod's cycles
            assert used() == before, "a team that has no turn uses the processor"
    assert ended(pids)


@pytest.mark.soak
def test_turns_end_at_their_number_or_at_the_time_limit() -> None:
    alone = [systems.find("alone")]
    told: list[str] = []
    comparison = turns.compare("mini", alone, 1, Loopback(), turns.Limits(time_s=0.001), told.append)
    assert comparison.turns == 1 and list(comparison.runs) == ["alone"]
    assert told[0] == "mini: starting the ranks of alone" and told[-1].startswith("mini: turn 1")
    assert turns.compare("mini", alone, 1, Loopback(), turns.Limits(turns=3)).turns == 3


def test_a_rank_that_cannot_start_is_shown_with_its_output() -> None:
    told = refusal(made_here("fails_to_connect"), 2)
    assert "Rank 1 of fails_to_connect on localhost ended with status 1." in told
    assert "ConnectionError: the cable is cut" in told


def test_a_rank_that_dies_in_its_turn_ends_the_benchmark() -> None:
    told = refusal(made_here("dies_in_its_turn"), 3)
    assert "Rank 2 of dies_in_its_turn on localhost ended with status 7." in told and "no more paper" in told


@pytest.mark.soak
def test_ranks_step_alike_until_all_have_a_plan_and_again_when_they_plan_anew() -> None:
    told: list[str] = []
    with Team(made_here("plans_when_it_likes"), "mini", 3, Loopback(), told.append) as started:
        # Rank 2 has a plan at its 18th step: three steps at the start, three batches of five, and one to be checked.
        assert reasons(started.run(4)) == ["step 24"] * 3
        assert told[1:] == [
            "plans_when_it_likes warms up, 5 steps, active: step 8 (rank 0), warming: step 8 (rank 1, 2)",
            "plans_when_it_likes warms up, 10 steps, active: step 13 (rank 0, 1), warming: step 13 (rank 2)",
        ]
        second = started.run(4)  # ends while the ranks sweep
        assert second.plan is None and reasons(second) == ["step 29"] * 3
        third = started.run(4)  # after one batch and one step to be checked
        assert third.plan is not None and reasons(third) == ["step 40"] * 3


def test_a_rank_that_refuses_to_merge_ends_the_benchmark() -> None:
    told = refusal(made_here("refuses_to_merge"), 2)
    assert "Rank 1 of refuses_to_merge refuses to merge: step 8." in told


def test_gradients_are_checked_once_more_when_merging_is_active() -> None:
    told = refusal(made_here("loses_a_gradient_once_it_merges", averages=True), 1)
    assert "gradient of norm.bias, element 0: expected the mean over 1 ranks, 11, found 0" in told


def test_a_system_that_does_not_average_is_found_out() -> None:
    told = refusal(made_here("does_not_average", averages=True), 2)
    assert "gradient of conv.weight, element 0: expected the mean over 2 ranks, 12, found" in told


def test_gradients_that_come_a_step_late_are_checked_in_that_step() -> None:
    with Team(made_here("comes_a_step_late", averages=True, age=1), "mini", 1, Loopback()) as started:
        assert started.run(4).counted("messages") == 1
    told = refusal(made_here("comes_a_step_late", averages=True), 1)
    assert "gradient of conv.weight, element 0: expected the mean over 1 ranks, 8, found 0" in told


def test_gradients_of_the_same_step_are_not_taken_for_older_ones() -> None:
    told = refusal(made_here("averages_at_once", averages=True, age=1), 1)
    assert "gradients of this very step were used, expected are those of an earlier one" in told


@pytest.mark.soak
def test_ranks_that_hang_are_reported_with_their_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "READY_LIMIT_S", 6.0)
    told = refusal(made_here("never_ready"), 2)
    assert "No answer from rank 0, 1 of never_ready within 6 s." in told
    assert told.count("in never_ready") == 2, told


@pytest.mark.soak
def test_ranks_end_when_their_controller_is_killed() -> None:
    code = (
        "import time\n"
        "from paceline.examples.benchmarks.harness import hosts, systems, team\n"
        "with team.Team(systems.find('horovod'), 'mini', 2, hosts.Loopback()) as started:\n"
        "    print(started.crew.folder, *started.crew.pids, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as controller:
        try:
            assert controller.stdout is not None
            folder, *pids = controller.stdout.readline().split()
        finally:
            controller.send_signal(signal.SIGKILL)
    shutil.rmtree(folder)  # nobody was left to remove it
    assert len(pids) == 2 and ended([int(pid) for pid in pids]), "stopped ranks outlive their controller"
