"""`python -m examples.benchmarks scale` with real ranks, forked from one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.scale.cases import Case
from paceline.examples.benchmarks.scale.systems import SYSTEMS, find
from paceline.examples.benchmarks.scale.worlds import ScaleWorld

pytestmark = pytest.mark.more

COMMAND = [sys.executable, "-m", "paceline.examples.benchmarks", "scale"]


def measured(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run([*COMMAND, *words, "--json"], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(result: dict[str, Any], parts: int) -> None:
    found = result["systems"]
    assert list(found) == list(SYSTEMS)
    for name, system in found.items():
        assert system["step_ms"]["median"] > 0 and system["coordination_ms"]["median"] >= 0, name
        assert system["background_cpu_ms_per_step"] > 0 and system["cpu_ms_per_step"] > 0, name
        assert system["messages_per_step"] >= parts and system["coordination_rounds_per_step"] > 0, name
    # Of armed steps one part is negotiated, and messages are those of the plan.
    armed, stock = found["armed"], found["cached"]
    assert armed["messages_per_step"] == parts
    assert stock["coordination_rounds_per_step"] >= parts > armed["coordination_rounds_per_step"]
    # Ranks with cycles wake up a thousand times per second.
    for name in ("events", "armed"):
        assert 10 * found[name]["rest_background_wakeups_per_s"] < stock["rest_background_wakeups_per_s"], name


def test_systems_take_turns_on_two_ranks() -> None:
    result, last = measured(["--ranks", "2", "--tensors", "10", "--parts", "5", "--turns", "1"])
    check(result, parts=5)
    assert result["ranks"] == 2 and set(last["systems"]) == set(SYSTEMS) and last["plans"]


@pytest.mark.timeout(300)
def test_more_ranks_follow_from_those_that_were_measured(tmp_path: Path) -> None:
    picture = tmp_path / "scale.png"
    words = ["--ranks", "2..4", "--tensors", "8", "--turns", "1", "--latency", "50us", "--plot", str(picture)]
    *results, last = measured(words)
    assert [result["ranks"] for result in results] == [2, 3, 4]
    for result in results:
        check(result, parts=4)
    assert list(last["systems"]) == list(SYSTEMS)
    # On a busy machine times may not grow with the ranks, and then nothing follows.
    for name, found in ((name, found) for name, found in last["systems"].items() if found is not None):
        assert min(found["hop_us"], found["message_us"], found["fixed_us"]) >= 0, name
        assert found["simulated_ms"]["4096"] >= found["simulated_ms"]["2"] > 0, name
    assert picture.stat().st_size > 10_000


def test_a_rank_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(UserError, match=r"Rank \d of cached on localhost ended") as caught:
        with ScaleWorld(find("cached"), Case(4, 2, 256), 2, Loopback()) as world:
            world.rest(-1.0)
    assert "ValueError" in caught.value.remedy
