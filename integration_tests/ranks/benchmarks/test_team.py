"""Ranks of a system: stopped between turns, named on failure, ended with their controller; wrong results are found."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.more import more
from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.benchmarks.collectives.benchmark import CallTeam, Settings
from paceline.examples.benchmarks.collectives.systems import find as find_collective
from paceline.examples.benchmarks.harness import team
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.harness.system import System
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.networks.network import Network
from paceline.examples.benchmarks.steps.benchmark import find
from paceline.examples.benchmarks.steps.team import StepTeam
from paceline.examples.benchmarks.steps.training import Training
from paceline.launch.probe.buffers import Case

pytestmark = pytest.mark.more

END_LIMIT_S = 20.0
ENV = {"PYTHONPATH": str(ROOT)}


class Dies:
    """Rank 1 dies when it gets an order."""

    hello = None

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        self._rank = place.rank

    def answer(self, order: Any, control: Connection) -> Any:
        if self._rank == 1:
            print("no more paper", flush=True)
            os._exit(7)


def never_ready(place: Place, options: dict[str, Any]) -> Any:
    time.sleep(300)


def does_not_average(network: Network, place: Place) -> Training:
    return Training(lambda: network().backward())


def ended(pids: list[int]) -> bool:
    deadline = time.monotonic() + END_LIMIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def refusal(started: Team) -> str:
    """Error message if the ranks cannot start or cannot answer; no process may be left."""
    with pytest.raises(UserError) as caught, started:
        started.ask(None, 30.0)
    assert ended([process.pid for process in started._processes])
    return str(caught.value)


@pytest.mark.parametrize("forked", [False, True])
def test_a_rank_that_dies_is_named_with_its_output(forked: bool) -> None:
    reported = refusal(Team(System("dying", f"{__name__}:Dies", ENV, forked=forked), 2, Loopback()))
    assert "Rank 1 of dying on localhost ended with status 7." in reported and (forked or "no more paper" in reported)


def test_ranks_that_hang_are_reported_with_their_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "READY_LIMIT_S", 6.0)
    reported = refusal(Team(System("hanging", f"{__name__}:never_ready", ENV), 2, Loopback()))
    assert "No answer from rank 0, 1 of hanging within 6 s." in reported and reported.count("in never_ready") == 2


def test_a_system_that_does_not_average_is_found_out() -> None:
    options = {**find("ddp", "mini").options, "training": f"{__name__}:does_not_average"}
    reported = refusal(StepTeam(System("wrong", find("ddp", "mini").setup, ENV, options), 2, Loopback()))
    assert "gradient of conv.weight, element 0: expected the mean over 2 ranks, 12, found" in reported


def test_gradients_of_the_same_step_are_not_taken_for_older_ones() -> None:
    system = find("stock", "mini")
    reported = refusal(StepTeam(System("early", system.setup, system.env, {**system.options, "age": 1}), 2, Loopback()))
    assert "gradients of this very step were used, expected are those of an earlier one" in reported


@pytest.mark.parametrize("name", [more("stock"), more("ddp"), "pipelined"])
def test_gradients_of_a_network_that_computes_are_averaged_and_sent_once_per_step(name: str) -> None:
    # The ranks compare their gradients with the mean before they are ready.
    with StepTeam(find(name, "resnet20-real"), 2, Loopback()) as started:
        sent = started.run(4).figures["bytes"]
        assert sent is not None
        assert abs(sent / models.find("resnet20-real").gradient_bytes - 1) <= (0.5 if name == "pipelined" else 0)


def test_an_operation_that_fails_on_ranks_ends_the_benchmark() -> None:
    collective = find_collective("ring")
    with pytest.raises(UserError, match=r"Rank \d of ring on localhost ended") as caught:
        with CallTeam(collective, Settings(ranks=(2,)), 2, Loopback()) as started:
            started.take(Case("gather", 64))
    assert "gather" in caught.value.remedy


def test_ranks_stand_still_between_turns_and_go_on() -> None:
    with StepTeam(find("stock", "mini"), 3, Loopback()) as started:
        pids = started.pids
        for steps in (3, 5):
            assert started.run(steps).figures["bytes"] == 4 * models.find("mini").parameters

            def used() -> list[list[str]]:
                return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]

            before = used()
            time.sleep(0.3)  # hundreds of Horovod's cycles
            assert used() == before, "a team that has no turn uses the processor"
    assert ended(pids)


def test_ranks_end_when_their_controller_is_killed() -> None:
    code = (
        "import time\n"
        "from paceline.examples.benchmarks.harness.hosts import Loopback\n"
        "from paceline.examples.benchmarks.steps.benchmark import find\n"
        "from paceline.examples.benchmarks.steps.team import StepTeam\n"
        "with StepTeam(find('stock', 'mini'), 2, Loopback()) as started:\n"
        "    print(started.folder, *started.pids, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as controller:
        try:
            assert controller.stdout is not None
            folder, *pids = controller.stdout.readline().split()
        finally:
            controller.send_signal(signal.SIGKILL)
    shutil.rmtree(folder)  # no process was left to remove it
    assert len(pids) == 2 and ended([int(pid) for pid in pids]), "stopped ranks outlive their controller"
