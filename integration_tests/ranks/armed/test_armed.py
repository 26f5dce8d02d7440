"""Armed steps: every sum is that of negotiated ones, and the ranks negotiate once a step."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

from integration_tests.support import timelines
from integration_tests.support.arming import ARMED, TorchSteps, arm, in_parts, is_armed, meet, state, step_armed
from integration_tests.support.fuzz_events import world_of_one
from integration_tests.support.merging import Messages, repeat
from integration_tests.support.ranks import ranks, run_ranks
from paceline.native.library import counters

STEPS = 20
SIZES = {f"armed.{n:02}": size for n, size in enumerate((1000, 3, 1, 70_001, 17, 5, 300, 2))}
GROUPS = (2, 3, 1, 2)


@ranks(2, 3, more=(4,), env=ARMED)
def test_sums(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "armed.", GROUPS)
    before = state()
    messages = Messages()
    for number in range(step, step + STEPS):
        steps.step(number)
    hvd.barrier()
    after = state()
    assert (after.state, after.steps - before.steps) == ("armed", STEPS), after
    assert (after.messages - before.messages, after.fallbacks) == (STEPS * (len(GROUPS) - 1), before.fallbacks)
    names = sorted(hand.names("armed."))
    groups = [names[:2], names[2:5], names[5:6], names[6:]]
    assert messages.stop()[2:-1] == [groups] * (STEPS - 3)
    hand.end()


@ranks(2, 3, more=(4,), env=ARMED)
def test_tensors_in_parts(rank: int, size: int) -> None:
    """In place and not, and more parts than elements."""
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "armed.", GROUPS)
    names = sorted(hand.names("armed."))
    parts = {2: 3, 3: 7, 4: 2}  # of 1, 70,001 and 17 elements
    groups = in_parts(names, parts)
    hand.follow(groups)
    step = repeat("torch", steps.step, is_armed, step, state)
    before = state()
    for number in range(step, step + STEPS):
        steps.step(number)
    meet()
    after = state()
    assert (after.state, after.steps - before.steps) == ("armed", STEPS), after
    assert after.messages - before.messages == STEPS * (len(groups) - 1)
    followed = hand.state()
    found = {tensor.name: count for tensor, count in zip(followed.tensors, followed.parts_of, strict=True)}
    assert {name: found[name] for name in names} == {name: parts.get(n, 1) for n, name in enumerate(names)}
    # Every element comes from its own place, and what was handed in stays as it was.
    for number in range(5):
        handles = []
        for name, count in SIZES.items():
            tensor = torch.arange(count, dtype=torch.float32) + float(rank + number)
            handles.append((tensor, tensor.clone(), hvd.allreduce_async(tensor, name=name, op=hvd.Sum)))
        for tensor, was, handle in handles:
            expected = size * torch.arange(len(tensor), dtype=torch.float32) + size * (size - 1) / 2 + size * number
            assert torch.equal(hvd.synchronize(handle), expected)
            assert torch.equal(tensor, was)
    meet()
    assert state().steps - after.steps >= 4, state()
    hand.end()


@ranks(2, 3, env=ARMED)
def test_one_coordination_round_a_step(rank: int, size: int) -> None:
    """None between the result of the first group and the step's last tensor, however long that takes."""
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "armed.", GROUPS)
    meet()
    before = state()
    names = list(SIZES)
    for number in range(step, step + STEPS):
        rounds = []
        for place, name in enumerate(names):
            steps.start(name, number)
            if place + 1 in itertools.accumulate(GROUPS[:-1]):
                for one in list(steps.handles):
                    steps.finish(one, number)
                rounds.append(counters("torch")["coordination_rounds"])
        assert rounds == rounds[:1] * (len(GROUPS) - 1), f"step {number}: {rounds}"
        for one in list(steps.handles):
            steps.finish(one, number)
    meet()
    assert (state().steps - before.steps, state().fallbacks) == (STEPS, before.fallbacks), state()
    hand.end()


@ranks(2, 3, env=ARMED)
def test_orders_of_tensors_that_differ_between_ranks_and_steps(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    chance = random.Random(rank)

    def shuffled(step: int) -> None:
        names = list(SIZES)
        chance.shuffle(names)
        if chance.random() < 0.2:
            time.sleep(0.01 * chance.random())
        steps.step(step, names)

    hand, step = arm(steps.step, "armed.", GROUPS)
    for number in range(step, step + STEPS):
        shuffled(number)
    hvd.barrier()
    assert state().state == "armed", state()
    assert state().fallbacks == 0, state()
    hand.end()


@ranks(2, 3, env=ARMED)
def test_types_averages_and_factors(rank: int, size: int) -> None:
    """Values are such that every operation on them is exact in float16."""
    kinds: dict[str, tuple[Any, dict[str, Any], float]] = {
        "a.float16": (torch.float16, {"op": hvd.Sum}, 1),
        "a.float32": (torch.float32, {"op": hvd.Sum}, 1),
        "b.float64": (torch.float64, {"op": hvd.Average}, 1 / size),
        "c.float16": (torch.float16, {"op": hvd.Sum, "prescale_factor": 0.5}, 0.5),
        "c.float32": (torch.float32, {"op": hvd.Sum, "postscale_factor": 4.0}, 4),
        "d.float64": (torch.float64, {"op": hvd.Average, "prescale_factor": 8.0, "postscale_factor": 0.25}, 2 / size),
    }

    def step_of(step: int) -> None:
        handles = {}
        for n, (kind, (dtype, options, _)) in enumerate(kinds.items()):
            tensor = torch.full((13 + n,), 2.0 * (rank + 1) + step % 8, dtype=dtype)
            handles[kind] = hvd.allreduce_async(tensor, name=f"kinds.{kind}", **options)
        for n, (kind, (_, _, factor)) in enumerate(kinds.items()):
            result = hvd.synchronize(handles[kind])
            expected = factor * sum(2.0 * (one + 1) + step % 8 for one in range(size))
            torch.testing.assert_close(result.double(), torch.full((13 + n,), expected).double(), rtol=1e-7, atol=0)

    hand, step = arm(step_of, "kinds.", (2, 1, 2, 1))
    before = state()
    for number in range(step, step + STEPS):
        step_of(number)
    meet()
    assert (state().state, state().steps - before.steps) == ("armed", STEPS), state()
    meet()  # the other plan comes when all have looked
    hand.follow(in_parts(sorted(hand.names("kinds.")), {1: 2, 2: 3, 3: 20, 4: 2, 5: 5}))
    step_armed(step_of, STEPS // 2, begin=step + STEPS)
    hand.end()


@ranks(1, env=ARMED)
def test_one_rank_alone(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "armed.", GROUPS)
    steps.step(step)
    hand.end()


@ranks(2, 3, env=ARMED, fresh=True)
def test_a_rank_that_had_armed_steps_in_a_world_before_as_after_an_elastic_reset(rank: int, size: int) -> None:
    hvd.shutdown()
    if rank == 0:
        with world_of_one():
            arm(TorchSteps(0, 1, SIZES).step, "armed.", GROUPS)
    hvd.init()
    assert hvd.size() == size
    steps = TorchSteps(rank, size, SIZES)
    for number in range(STEPS):
        steps.step(number)
    hvd.barrier()
    assert (state().state, state().steps) == ("off", 0)


def _timeline(rank: int, size: int, path: Path) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "armed.", GROUPS)
    for number in range(step, step + 3):
        steps.step(number)
    hand.end()
    timelines.reach(path, rank, "armed.end")
    hvd.shutdown()


def test_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    run_ranks(_timeline, 2, path, env=ARMED | {"HOROVOD_TIMELINE": str(path)}, fresh=True)
    events = timelines.events(path)
    named = {event["pid"]: event["args"].get("name") for event in events if event.get("name") == "process_name"}
    armed = {named[event["pid"]] for event in events if event.get("name") == "PACELINE_ARMED"}
    assert armed == {f"allreduce.{name}" for name in list(SIZES)[GROUPS[0] :]}
