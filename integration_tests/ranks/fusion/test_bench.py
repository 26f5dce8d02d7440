"""`python -m examples.benchmarks fusion` on two ranks: the policies are in force when they are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.timeout(200), pytest.mark.more]

TENSORS = 7  # of the model mini
POLICIES = ("none", "single", "mgwfbp", "optimal")


def test_every_policy_is_measured_by_its_own_plan() -> None:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", "fusion", "--hosts", "1", "--np", "2"]
    # Watching measures together with all ranks now and then: a message that is not in the plan.
    done = subprocess.run(
        [*command, "--model", "mini", "--turns", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "PACELINE_FUSION_WATCH_STEPS": "0"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result["systems"]) == ["stock", "ddp", *POLICIES, "alone"]
    assert list(result["plans"]) == list(POLICIES)
    gradient_bytes = 4 * result["parameters"]
    for policy, plan in result["plans"].items():
        assert len(plan["group_bytes"]) == plan["groups"] and sum(plan["group_bytes"]) == gradient_bytes, policy
        assert plan["a_ms"] >= 0 and plan["b_ms_per_mb"] >= 0 and plan["coordination_ms"] >= 0, policy
        assert plan["predicted_step_ms"] > 0, policy
        assert plan["timeouts"] == 0, policy
        # What crosses the network in a step is exactly the plan.
        system = result["systems"][policy]
        assert (system["messages_per_step"], system["bytes_per_step"]) == (plan["groups"], gradient_bytes), policy
    assert result["plans"]["none"]["groups"] == TENSORS
    assert result["plans"]["single"]["groups"] == 1
    assert {"optimal_over_stock", "optimal_over_ddp", "predicted_over_measured"} <= set(result["ratios"])
    for name, ratio in result["ratios"].items():
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] and ratio["turns"] == 2, name
    assert "--policy none --policy single --policy mgwfbp --policy optimal" in result["command"]
