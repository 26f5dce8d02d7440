"""Knowledge of a running emulated cluster for tests, in addition to its public interface."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from integration_tests.support.ranks import ROOT
from paceline.examples.benchmarks.cluster.lifetime import NETNS, processes_in

# For ranks that share this machine.
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
PACELINE_RANK = [sys.executable, "-m", "paceline.launch.cli", "rank"]
RANK_SCRIPT = [sys.executable, str(ROOT / "integration_tests" / "support" / "rank_script.py")]
DIGITS = [sys.executable, str(ROOT / "examples" / "digits_torch.py")]


def reports(output: str, *fields: str) -> list[tuple[Any, ...]]:
    """These fields of each rank's REPORT line, by rank."""
    found = [json.loads(text) for text in re.findall(r"REPORT (\{.*\})", output)]
    return [tuple(one[field] for field in fields) for one in sorted(found, key=lambda one: int(one["rank"]))]


def digits_result(output: str) -> dict[str, Any]:
    """Result of a job that has trained the digits, equal on all ranks."""
    print(output)
    (result,) = (json.loads(text) for text in re.findall(r"RESULT (\{.*\})", output))
    assert result["equal"]
    return dict(result)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Fail with `what` if the condition does not hold within 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def processes_at_switch(tag: str) -> list[int]:
    """Process ids in the network namespace of a cluster's switch: one if it is a process, none if it is a bridge."""
    return processes_in([NETNS / f"{tag}-switch"])
