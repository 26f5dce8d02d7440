"""The benchmark over emulated hosts: the gradients really cross the links."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.more


@pytest.mark.parametrize("latency", ["none", "1ms"])
def test_baseline_over_two_hosts_counts_what_crosses_each_link(latency: str) -> None:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "baseline", "hosts=2", "rate=200mbit"]
    done = subprocess.run(
        [*command, f"latency={latency}", "models=mini", "--turns", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    found = None if latency == "none" else latency
    assert (result["hosts"], result["ranks"], result["rate"], result["latency"]) == (2, 2, "200mbit", found)
    gradient_bytes = 4 * result["parameters"]
    for name in ("stock", "ddp"):
        # Of two ranks, each sends half of every gradient to be added and half of every sum.
        assert result["systems"][name]["sent_bytes"]["median"] >= gradient_bytes, name
    assert result["systems"]["alone"]["sent_bytes"]["median"] < gradient_bytes / 10
