"""`paceline probe` with real ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.collectives import network_file

pytestmark = pytest.mark.more


def test_a_network_is_probed_and_shown(tmp_path: Path) -> None:
    file, picture = tmp_path / "network.json", tmp_path / "network.png"
    words = ["-np", "2", "-o", str(file), "--plot", str(picture), "--sizes", "4,4KiB", "--pair-size", "64KiB"]
    command = [sys.executable, "-m", "paceline.launch.cli", "probe", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    network = network_file.load(file)
    assert network.ranks == 2 and len(network.pairs) == 2 and picture.stat().st_size > 1000
    assert {timing.collective for timing in network.timings} >= {"horovod", "linear", "ring", "direct", "doubling"}
    assert all(timing.message_s < timing.call_s for timing in network.timings)
    assert "allreduce among 2 ranks" in done.stdout and "Pairs: latency us" in done.stdout
