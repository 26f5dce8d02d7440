"""Benchmark pipelined on two ranks: every system sends what it says, and the parts stand beside the whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from integration_tests.support.more import more
from paceline.examples.benchmarks.harness import systems
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.networks.models import find

pytestmark = [pytest.mark.timeout(200), pytest.mark.more]

EXCHANGING = ("stock", "ddp", "sync_optimal", "pipelined", "pipelined_optimal", "communication")
RATIOS = {
    "pipelined_over_stock",
    "pipelined_over_ddp",
    "pipelined_over_sync_optimal",
    "pipelined_optimal_over_stock",
    "pipelined_optimal_over_sync_optimal",
    "measured_over_max_model",
    "optimal_measured_over_max_model",
    "communication_over_compute",
}


def test_every_system_sends_every_gradient_once_per_step() -> None:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "pipelined", "--hosts", "1", "--np", "2"]
    done = subprocess.run(
        [*command, "--model", "mini", "--turns", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    measured, gradient_bytes = result["systems"], 4 * result["parameters"]
    assert list(measured) == [*EXCHANGING, "alone"]
    for name in EXCHANGING:
        system = measured[name]
        # Pipelined gradients are still on their way when a turn ends, as others were when it began.
        edge = 2 * system["turns"] / system["steps"] if name.startswith("pipelined") else 0
        assert abs(system["bytes_per_step"] / gradient_bytes - 1) <= edge, name
        assert 1 - edge <= system["messages_per_step"] <= (1 + edge) * result["tensors"], name
    assert measured["alone"]["bytes_per_step"] is None
    plans = result["plans"]
    assert list(plans) == ["sync_optimal", "pipelined_optimal"]
    assert all(sum(plan["group_bytes"]) == gradient_bytes for plan in plans.values())
    assert measured["sync_optimal"]["messages_per_step"] == plans["sync_optimal"]["groups"]
    # A plan foretells steps that wait for their own gradients, no others.
    assert plans["sync_optimal"]["predicted_step_ms"] > 0 and plans["pipelined_optimal"]["predicted_step_ms"] is None
    assert set(result["ratios"]) == RATIOS
    for name, ratio in result["ratios"].items():
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] and ratio["turns"] == 2 and ratio["wide"], name
    assert result["rate"] is None and "--communication-share 1 --model mini" in result["command"]


@pytest.mark.parametrize("name", [more("horovod"), more("ddp"), "pipelined"])
def test_gradients_of_a_network_that_computes_are_averaged_and_sent_once_per_step(name: str) -> None:
    system = systems.find(name)
    assert system.averages  # so that the ranks check it before they are ready
    with Team(system, "resnet20-real", 2, Loopback()) as started:
        sent = started.run(4).counted("bytes")
        assert sent is not None
        assert abs(sent / find("resnet20-real").gradient_bytes - 1) <= (0.5 if system.age else 0)
