"""Armed steps of ranks that sleep until something happens (wake=events)."""

from __future__ import annotations

import itertools
import time

import horovod.torch as hvd
import torch

from integration_tests.support.arming import TorchSteps, arm, meet, state
from integration_tests.support.debug import debug
from integration_tests.support.ranks import ranks
from paceline.native.library import counters

EVENTS = debug(armed=True, wake="events")
STEPS = 20
SIZES = {f"asleep.{n:02}": size for n, size in enumerate((1000, 3, 1, 70_001, 17, 5, 300, 2))}
GROUPS = (2, 3, 1, 2)


@ranks(2, 3, more=(4,), env=EVENTS)
def test_sums(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "asleep.", GROUPS)
    before = state()
    for number in range(step, step + STEPS):
        steps.step(number)
        time.sleep(0.01 * ((number + rank) % 3))  # somebody is asleep, or waits
    meet()  # a step is counted after its results have come
    after = state()
    assert after.steps - before.steps == STEPS, after
    hand.end()


MANY = {f"parts.{n:02}": 10 + n for n in range(12)}


@ranks(2, 3, more=(4,), env=EVENTS)
def test_a_rank_begins_the_round_with_the_last_tensor_of_the_first_group(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, MANY)
    hand, step = arm(steps.step, "parts.", (10, 2))
    steps.step(step)
    meet()  # a step is counted after its results have come
    before, reached = state(), [counters("torch")["coordination_rounds"]]
    for number in range(step + 1, step + 1 + STEPS):
        for name in MANY:
            steps.start(name, number)
            time.sleep(0.002)  # longer than a cycle: each of them would begin a round
        for name in MANY:
            steps.finish(name, number)
        reached.append(counters("torch")["coordination_rounds"])
    meet()
    assert state().steps - before.steps == STEPS, state()
    # One of each step. A busy machine may stop a rank for longer than others wait (10 ms), but not in every step.
    rounds = [after - before for before, after in itertools.pairwise(reached)]
    assert sum(rounds) >= STEPS - 1 and sorted(rounds)[1] < 4, rounds
    hand.end()


@ranks(2, 3, env=EVENTS)
def test_other_operations_do_not_wait_for_a_first_group_that_is_not_complete(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, MANY)
    hand, step = arm(steps.step, "parts.", (10, 2))
    names = list(MANY)
    for number in range(step, step + 5):
        for name in names[:5]:
            steps.start(name, number)
        total = hvd.allreduce(torch.tensor([1.0 + rank]), name="between", op=hvd.Sum)
        assert total.item() == size * (size + 1) / 2
        if rank == 0:
            time.sleep(0.05)  # the others hold, and are asked by none; rank 0 has nothing for longer than that
        handle = hvd.broadcast_async(torch.tensor([number]), 0, name="notified")
        for name in names[5:]:
            steps.start(name, number)
        assert hvd.synchronize(handle).item() == number
        for name in names:
            steps.finish(name, number)
    meet()
    hand.end()


@ranks(2, 3, env=EVENTS)
def test_the_rest_of_a_step_that_fell_back_wakes_ranks(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "asleep.", GROUPS)

    def other() -> float:
        time.sleep(0.1)  # the step runs, and lacks a tensor
        return hvd.allreduce(torch.tensor([1.0 + rank]), name="other", op=hvd.Sum).item()

    # Waited for before the step's last tensor is there, which goes by negotiation then.
    assert steps.step_around(step, len(SIZES) - 1, other) == size * (size + 1) / 2
    meet()
    assert state().fallbacks == 1, state()
    for number in range(step + 1, step + 10):
        steps.step(number)
    hand.end()
