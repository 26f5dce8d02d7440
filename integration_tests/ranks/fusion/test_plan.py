"""`paceline plan` on a trace that `paceline record` has just written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from integration_tests.ranks.record.test_record import SIZES, STEPS, record
from paceline.fusion import from_trace


def test_plan_from_a_recorded_trace(tmp_path: Path) -> None:
    # Every tensor alone: three sizes, so that a cost can be fitted.
    done = record(tmp_path, flags=("--fusion-threshold-mb", "0"))
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "paceline.launch.cli", "plan", "trace.json", "--json", "-o", "plan.json"]
    done = subprocess.run([*command, "--plot", "plan.png"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sizes = {f"allreduce.w{number}": 4 * elements for number, elements in enumerate(SIZES)}
    assert {one["name"]: one["bytes"] for one in found["gradients"]} == sizes
    ready_s = [one["ready_s"] for one in found["gradients"]]
    assert ready_s == sorted(ready_s)
    assert 0 < ready_s[-1] < found["measured"]["finish_s"]
    assert (found["ranks"], found["steps"]) == (2, STEPS - from_trace.WARM_UP_STEPS)
    assert found["measured"]["messages"] == found["predicted"]["none"]["messages"] == len(SIZES)
    assert min(found["predicted"], key=lambda name: found["predicted"][name]["finish_s"]) == found["best"]
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["groups"] == [group["tensors"] for group in found["groups"]]
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
