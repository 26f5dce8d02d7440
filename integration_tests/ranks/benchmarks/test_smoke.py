"""A small run of each kind of benchmark, with real ranks over loopback. Times prove nothing in a test; counts do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from integration_tests.support.debug import debug

pytestmark = pytest.mark.more

TENSORS = 7  # of the model mini
POLICIES = ("none", "single", "mgwfbp", "optimal")
SYNCHRONOUS = {"gpipe", "1f1b", "torch_gpipe", "torch_1f1b"}


def measured(*words: str, **variables: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", *words, "--json"]
    environ = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_policy_is_measured_by_its_own_plan() -> None:
    systems = f"systems=stock,{','.join(POLICIES)}"
    # Watching measures together with all ranks now and then: a message that is not in the plan.
    (result,) = measured("resnet20", "hosts=1", "models=mini", systems, "--turns", "2", **debug(fusion_watch_steps=0))
    gradient_bytes = 4 * result["parameters"]
    for policy in POLICIES:
        system = result["systems"][policy]
        plan = system["plan"]
        assert sum(plan["group_bytes"]) == gradient_bytes and plan["timeouts"] == 0, policy
        assert plan["step_s"] > 0 and system["predicted_over_measured"]["median"] > 0, policy
        # What crosses the network in a step is exactly the plan.
        assert system["messages"]["median"] == len(plan["group_bytes"]), policy
        assert system["bytes"]["median"] == gradient_bytes, policy
    groups = {policy: len(result["systems"][policy]["plan"]["group_bytes"]) for policy in POLICIES}
    assert groups["none"] == TENSORS and groups["single"] == 1
    assert {f"{policy}_over_stock" for policy in POLICIES} <= set(result["ratios"])


def test_every_system_sends_every_gradient_once_per_step() -> None:
    names = ("stock", "ddp", "sync_optimal", "pipelined", "pipelined_optimal", "communication")
    words = ["resnet20", "hosts=1", "models=mini", f"systems={','.join(names)},alone", "--turns", "2"]
    (result,) = measured(*words)
    gradient_bytes = 4 * result["parameters"]
    for name in names:
        system = result["systems"][name]
        # Pipelined gradients are in flight when a turn ends, as others were when it began: steps of a turn, at least 6.
        edge = 1 / 6 if name.startswith("pipelined") else 0
        assert abs(system["bytes"]["median"] / gradient_bytes - 1) <= edge, name
        assert 1 - edge <= system["messages"]["median"] <= (1 + edge) * TENSORS, name
        assert system["step_ms"]["low"] > 0 and system["cpu_ms"]["median"] > 0, name
    alone = result["systems"]["alone"]
    assert alone["bytes"] is None and alone["step_ms"]["low"] >= 6, "its layers sleep for 6 ms"
    sync, late = (result["systems"][name] for name in ("sync_optimal", "pipelined_optimal"))
    assert sync["messages"]["median"] == len(sync["plan"]["group_bytes"])
    # A plan foretells steps that wait for their own gradients, no others.
    assert sync["predicted_over_measured"] is not None and late["predicted_over_measured"] is None
    assert {"pipelined_over_stock", "pipelined_over_max_of_parts", "communication_over_compute"} <= set(
        result["ratios"]
    )
    for ratio in result["ratios"].values():
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] and ratio["turns"] == 2 and ratio["wide"]


def test_collectives_have_calls_and_messages() -> None:
    systems = "systems=horovod,ddp,ring,linear"
    words = ["ranks=2", systems, "sizes=4,64KiB", "in_flight=3", "model_mb=0.1", "--turns", "1"]
    results = {(one["operation"], one["size_bytes"]): one for one in measured("allreduce", *words)}
    results |= {(one["operation"], one["size_bytes"]): one for one in measured("broadcast", *words)}
    able = {
        "broadcast": {"horovod", "ddp", "linear"},
        "allreduce": {"horovod", "ddp", "ring", "linear"},
        "broadcast_parameters": {"horovod", "linear"},
    }
    sized = {(operation, size) for operation in ("broadcast", "allreduce") for size in (4, 65536)}
    assert set(results) == {("broadcast_parameters", 100_000)} | sized
    for (operation, _), result in results.items():
        assert set(result["systems"]) == able[operation]
        for name, system in result["systems"].items():
            call_ms, message_ms = system["call_ms"]["median"], system["message_ms"]["median"]
            # Negotiation between the ranks takes time in addition to the message; torch.distributed's ranks need none.
            assert (0 < message_ms == call_ms) if name == "ddp" else (0 < message_ms < call_ms), (operation, name)
            assert operation == "broadcast_parameters" or system["together_ms"]["median"] > 0, name
    assert "ring_over_ddp_allreduce" in results["allreduce", 4]["ratios"]
    assert "linear_over_horovod_broadcast_message" in results["broadcast", 65536]["ratios"]


def test_both_libraries_train_alike_and_hold_what_their_schedules_say() -> None:
    systems = "gpipe,1f1b,pipedream,2bw,pipemare,pipemare_eager,torch_gpipe,torch_1f1b"
    words = ["stages=2", "microbatches=3,1", "models=sleeping,blocks", "forward_ms=1", "backward_ms=1"]
    results = measured("stages", *words, f"systems={systems}", "--turns", "1")
    assert len(results) == 4
    for result in results:
        left_out = set() if result["microbatches"] > 1 else {"torch_1f1b"}
        found = result["systems"]
        assert set(result["left_out"]) == left_out and set(found) == set(systems.split(",")) - left_out
        for name, system in found.items():
            assert 0 < system["utilisation"]["median"] <= 1 and system["throughput"]["median"] > 0, name
            assert system["weight_copies"] == system["weight_copies_model"], name
            assert system["activations"] == system["activations_model"], name
        # The same weights, batches and steps.
        losses = [found[name]["loss"] for name in SYNCHRONOUS & set(found)]
        assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-4)
        assert {"pipemare_over_gpipe", "gpipe_over_torch_gpipe"} <= set(result["ratios"])


def test_armed_steps_are_negotiated_once_and_idle_events_sleep() -> None:
    *_, result = measured("scale", "ranks=2,3,4", "tensors=10", "parts=5", "--turns", "1")
    found = result["systems"]
    for name, system in found.items():
        assert system["coordination_ms"]["median"] >= 0 and system["background_cpu_ms"]["median"] > 0, name
        assert system["messages"]["median"] >= 5, name
    # Only one part of an armed step is negotiated; its messages are the plan's.
    armed, stock = found["armed"], found["cached"]
    assert armed["messages"]["median"] == 5
    assert stock["coordination_rounds"]["median"] >= 5 > armed["coordination_rounds"]["median"]
    # Ranks with cycles wake up a thousand times per second.
    for name in ("events", "armed"):
        wakeups = found[name]["rest_background_wakeups_per_s"]["median"]
        assert 10 * wakeups < stock["rest_background_wakeups_per_s"]["median"], name
    # On a busy machine times may not grow with the ranks, and then nothing follows.
    for name, one in result["simulated"].items():
        assert one["simulated_ms"]["4096"] >= one["simulated_ms"]["2"] > 0, name


def test_rounds_of_late_ranks_have_the_contributions_of_their_quorum() -> None:
    results = measured("late-ranks", "ranks=3", "skew_ms=20", "sizes_bytes=64,32768", "--turns", "2")
    assert [one["size_bytes"] for one in results] == [64, 32768]
    for result in results:
        found = result["systems"]
        assert found["sync"]["fresh"]["median"] == 3 and found["majority"]["fresh"]["median"] >= 2
        assert all(1 <= one["fresh"]["median"] <= 3 and one["late_ms"]["median"] > 0 for one in found.values())
        assert found["sync"]["wait_model"] == 1 and "solo_over_sync" in result["ratios"]


def test_training_with_codecs_and_on_uneven_ranks_ends() -> None:
    (codecs,) = measured("codecs-uneven", "systems=none,q8", "seeds=1", "steps=20")
    assert codecs["systems"]["q8"]["loss_from_none"]["median"] != 0, "q8 rounds"
    (uneven,) = measured("uneven-training", "ranks=2", "systems=sync,majority", "arguments=--epochs,1,--compute-ms,1")
    assert uneven["systems"]["majority"]["accuracy"]["median"] > 0 and "majority_over_sync" in uneven["ratios"]


def test_local_training_ends_with_one_model() -> None:
    names = ("sync", "local", "streaming", "streaming_q8")
    words = [f"systems={','.join(names)}", "hosts=1", "steps=16", "sync_every=8", "seeds=1"]
    (result,) = measured("local-characters", *words)
    found = result["systems"]
    assert set(found) == set(names) and result["ranks"] == 2
    for name, system in found.items():
        assert system["step_ms"]["median"] > 0 and system["loss"]["median"] < 5, name
    losses = {system["loss"]["median"] for system in found.values()}
    assert len(losses) == len(names), "the same weights and batches, other averages"
    assert {f"{name}_over_sync" for name in names[1:]} == set(result["ratios"])


def test_memory_is_read_and_state_is_divided_among_ranks() -> None:
    systems = ("split_adam", "zero_adam")
    words = [f"systems={','.join(systems)}", "parameters=1e6", "layers=4"]
    (result,) = measured("memory-2-ranks", *words)
    assert result["parameters"] == 1_000_000 and set(result["systems"]) == set(systems)
    for name, system in result["systems"].items():
        # Fixed costs are several times such a model; the peaks themselves prove nothing here.
        assert system["peak_bytes"]["median"] > 4e6, name
        assert system["steady"] is None or system["steady"]["median"] <= system["above"]["median"] + 1e-6, name
        state = system["state"]["median"]
        # Two tensors like the parameters, divided among two ranks; the counts of steps are tensors, too.
        assert state == pytest.approx(1, abs=0.01), name
