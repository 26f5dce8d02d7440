"""Benchmark collectives and `paceline probe` with real ranks: figures of every system, right or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.collectives import network_file
from paceline.errors import UserError
from paceline.examples.benchmarks.collectives import systems
from paceline.examples.benchmarks.collectives.callers import Callers
from paceline.examples.benchmarks.collectives.cases import OPERATIONS, Case
from paceline.examples.benchmarks.collectives.systems import Caller, Calls, CollectiveSystem
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.launch.probe.buffers import Buffers

pytestmark = pytest.mark.more


def output_of(module: str, *words: str) -> str:
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_systems_take_turns_on_two_ranks() -> None:
    words = ["--ranks", "2", "--systems", "gloo,ddp,ring,linear", "--sizes", "4,64KiB", "--turns", "1"]
    printed = output_of(
        "paceline.examples.benchmarks", "collectives", *words, "--in-flight", "3", "--model-mb", "0.1", "--json"
    )
    results = {(one["operation"], one["size_bytes"]): one for one in map(json.loads, printed.splitlines())}
    assert len(results) == 7
    able = {
        "broadcast": {"gloo", "ddp", "linear"},
        "allreduce": {"gloo", "ddp", "ring", "linear"},
        "broadcast_parameters": {"gloo", "linear"},
    }
    for (operation, size), result in results.items():
        assert result["skipped"] == {} and result["ranks"] == 2
        found = result["systems"]
        assert set(found) >= able.get(operation, {"ddp"}), (operation, size)
        for name, system in found.items():
            call_ms, message_ms = system["call_ms"]["median"], system["message_ms"]["median"]
            # What the ranks need to agree is beside the message; torch.distributed's need nothing.
            assert (0 < message_ms == call_ms) if name == "ddp" else (0 < message_ms < call_ms), (operation, name)
            if operation in OPERATIONS:
                assert system["in_flight"]["messages"] == 3 and system["in_flight"]["call_ms"]["median"] > 0
    assert "ring_over_ddp_allreduce" in results["allreduce", 4]["ratios"]
    assert "linear_over_gloo_broadcast_message" in results["broadcast", 65536]["ratios"]
    assert "broadcast_parameters_ratio" in results["broadcast_parameters", 100000]["ratios"]


def adds_wrongly(place: Place) -> Caller:
    """A system whose second rank gets a wrong sum."""

    class Wrong:
        operations = OPERATIONS

        def leave(self) -> None:
            pass

        def prepare(self, case: Case) -> Calls:
            buffers = Buffers(case, place.rank, place.size)

            def call() -> None:
                for array in buffers.arrays:
                    array.fill(3 - place.rank)

            return Calls(buffers.fill, call, buffers.check)

    return Wrong()


def test_a_wrong_result_ends_the_benchmark() -> None:
    with pytest.raises(UserError, match=r"Rank 1 of wrong on localhost ended") as caught:
        with Callers(CollectiveSystem("wrong", f"{__name__}:adds_wrongly"), 2, Loopback()) as started:
            started.run(Case("allreduce", 64), 2)
    assert "allreduce of 64 bytes on rank 1: element 0 is 2.0, expected 3.0" in caught.value.remedy


@pytest.mark.skipif(bool(why := systems.find("mpi").refusal()), reason=why)
def test_open_mpi_is_measured_and_leaves_nothing() -> None:
    with Callers(systems.find("mpi"), 3, Loopback()) as started:
        pids = started.crew.pids
        for operation in OPERATIONS:
            for in_flight in (1, 2):
                assert len(started.run(Case(operation, 4096, in_flight), 2, warm_up=True).ranks) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_network_is_probed_and_shown(tmp_path: Path) -> None:
    file, picture = tmp_path / "network.json", tmp_path / "network.png"
    words = ["-np", "2", "-o", str(file), "--plot", str(picture), "--sizes", "4,4KiB", "--pair-size", "64KiB"]
    printed = output_of("paceline.launch.cli", "probe", *words)
    network = network_file.load(file)
    assert network.ranks == 2 and len(network.pairs) == 2 and picture.stat().st_size > 1000
    assert {timing.collective for timing in network.timings} >= {"gloo", "linear", "ring", "direct", "doubling"}
    assert all(timing.message_s < timing.call_s for timing in network.timings)
    assert "allreduce among 2 ranks" in printed and "Pairs: latency us" in printed
