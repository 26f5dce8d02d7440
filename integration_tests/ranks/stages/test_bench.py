"""Benchmark pipeline with real ranks: both libraries train alike, and hold what their schedules say."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.stages import systems
from paceline.examples.benchmarks.stages.cases import BLOCKS, Case
from paceline.examples.benchmarks.stages.worlds import World

pytestmark = pytest.mark.more

SYNCHRONOUS = {"gpipe", "1f1b", "torch_gpipe", "torch_1f1b"}


def test_systems_take_turns_on_two_stages() -> None:
    words = ["--stages", "2", "--microbatches", "3,1", "--forward-ms", "1", "--backward-ms", "1", "--turns", "1"]
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "pipeline", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    results = {(one["model"], one["microbatches"]): one for one in map(json.loads, done.stdout.splitlines())}
    assert len(results) == 4
    for (_, microbatches), result in results.items():
        skipped = set() if microbatches > 1 else {"torch_1f1b"}
        assert set(result["skipped"]) == skipped and set(result["systems"]) == set(systems.SYSTEMS) - skipped
        found = result["systems"]
        for name, system in found.items():
            assert 0 < system["utilisation"]["median"] <= 1 and system["throughput"]["median"] > 0, name
            assert system["weight_copies"] == system["weight_copies_model"], name
            assert system["activations"] == system["activations_model"], name
        # The same weights, batches and steps.
        losses = [found[name]["loss"] for name in SYNCHRONOUS & set(found)]
        assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)
        assert set(result["ratios"]["ours_over_torch"]) == {"gpipe", "1f1b"} - {one[6:] for one in skipped}
        assert {"pipemare_over_gpipe", "pipemare_over_1f1b", "pipedream_over_pipemare"} <= set(result["ratios"])


def test_a_stage_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(UserError, match=r"Rank \d of paceline on localhost ended") as caught:
        with World("paceline", 2, Loopback()) as world:
            world.run(Case(BLOCKS, 2, 2, 0.0, 0.0), "zigzag", 1)
    assert "zigzag" in caught.value.remedy
