"""The benchmark over emulated hosts: the gradients really cross the links."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.more


@pytest.mark.parametrize("latency", [None, "1ms"])
def test_baseline_over_two_hosts_counts_what_crosses_each_link(latency: str | None) -> None:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "baseline", "--hosts", "2", "--rate", "200mbit"]
    command += [] if latency is None else ["--latency", latency]
    done = subprocess.run(
        [*command, "--model", "mini", "--turns", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["hosts"], result["ranks"], result["rate"], result["latency"]) == (2, 2, "200mbit", latency)
    gradient_bytes = 4 * result["parameters"]
    for name in ("horovod", "ddp"):
        wire = result["systems"][name]["wire_bytes_per_step"]
        # Of two ranks, each sends half of every gradient to be added and half of every sum.
        assert len(wire["sent"]) == len(wire["received"]) == 2
        assert min(wire["sent"] + wire["received"]) >= gradient_bytes, name
    assert max(result["systems"]["alone"]["wire_bytes_per_step"]["sent"]) < gradient_bytes / 10
