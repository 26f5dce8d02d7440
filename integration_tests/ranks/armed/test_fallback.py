"""What armed steps are given up for: everybody negotiates again, nothing is lost, and in the end it is left at that."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import torch

from integration_tests.support.arming import (
    ARMED,
    TIMEOUT_S,
    TorchSteps,
    arm,
    groups_of,
    in_parts,
    is_armed,
    meet,
    state,
    step_armed,
)
from integration_tests.support.merging import repeat
from integration_tests.support.ranks import ranks, run_ranks

MOST_STRIKES = 3  # core/armed/step_watch.h
SIZES = {f"giving.{n}": size for n, size in enumerate((1000, 3, 1, 70_001, 17, 5))}
GROUPS = (2, 2, 2)
NAMES = list(SIZES)


@ranks(2, 3, env=ARMED)
def test_gradient_that_is_missing_on_all_ranks(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS, timeout_s=TIMEOUT_S)
    fallbacks = state().fallbacks
    for number in range(step, step + 3):
        steps.step(number, [name for name in NAMES if name != NAMES[number % 3 * 2 + 1]])
    for number in range(step + 3, step + 10):
        steps.step(number)
    hvd.barrier()
    assert state().fallbacks > fallbacks
    hand.end()


@ranks(3, env=ARMED)
def test_rank_that_waits_before_it_hands_in_the_last_gradient(rank: int, size: int) -> None:
    """Time and again: steps are negotiated for good after some."""
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS, timeout_s=TIMEOUT_S)

    def two_halves(number: int) -> None:
        for names in (NAMES[:3], NAMES[3:]) if rank == 1 else (NAMES,):
            steps.step(number, names)

    def settled() -> bool:
        return is_armed() or state().state == "off"

    turns = 0
    while state().state != "off":  # the same on all ranks; a rank that stalls earns a strike, too
        assert turns < MOST_STRIKES, state()
        fallbacks = state().fallbacks
        two_halves(step)
        meet()
        assert state().fallbacks == fallbacks + 1, state()
        step = repeat("torch", steps.step, settled, step + 1, state)
        turns += 1
    because = state().fallback_reason
    assert ("did not come in time" if rank == 1 else "another rank") in because, because
    assert "too often" in state().reason
    hand.end()


@ranks(2, 3, env=ARMED)
def test_other_operations_between_gradients(rank: int, size: int) -> None:
    """A broadcast, an allgather and an allreduce that nobody has seen before, each waited for within a step."""
    steps = TorchSteps(rank, size, SIZES)
    others: dict[str, Callable[[int], Any]] = {
        "broadcast": lambda n: hvd.broadcast(torch.tensor([float(rank + n)]), 0, name=f"between.{n}"),
        "allgather": lambda n: hvd.allgather(torch.tensor([float(rank)]), name=f"between.{n}").sum(),
        "allreduce": lambda n: hvd.allreduce(torch.tensor([float(rank)]), op=hvd.Sum, name=f"between.{n}"),
    }
    step = 0
    for n, (kind, other) in enumerate(others.items()):
        hand, step = arm(steps.step, "giving.", GROUPS, begin=step, timeout_s=TIMEOUT_S)
        fallbacks = state().fallbacks
        result = float(steps.step_around(step, 3, functools.partial(other, n), finished=2))
        assert result == (n if kind == "broadcast" else size * (size - 1) / 2), (kind, result)
        meet()
        assert state().fallbacks == fallbacks + 1, state()
        step = repeat("torch", steps.step, is_armed, step + 1, state)
        hand.end()


@ranks(2, 3, more=(4,), env=ARMED)
def test_steps_that_fall_back_with_tensors_in_parts(rank: int, size: int) -> None:
    """Parts that were sent are done for good; a tensor whose first one was not is negotiated whole."""
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS)
    groups = in_parts(sorted(hand.names("giving.")), {1: 2, 3: 6, 5: 3})
    fallbacks, timeout_s = state().fallbacks, 0.3

    def part_of_it(number: int, last: int) -> None:
        steps.step(number, NAMES[:last])

    def other_operation(number: int, last: int) -> None:
        steps.step_around(number, last, lambda: hvd.broadcast(torch.ones(1), 0, name="parts.other"), 1)

    def late_rank(number: int, last: int) -> None:
        steps.step_around(number, last, lambda: time.sleep(2 * timeout_s * (rank == 1)))

    for fault in (part_of_it, other_operation, late_rank):
        for last in (2, 4, 5):
            hand.follow(groups[:-1] if last == 4 else groups, timeout_s)  # another plan, and no strikes
            for number in range(step, step + 6):
                steps.step(number)
            fault(step + 6, last)
            for number in range(step + 7, step + 12):
                steps.step(number)
            step += 12
    hvd.barrier()
    assert state().fallbacks > fallbacks
    hand.end()


@ranks(2, 3, env=ARMED)
def test_other_operations_from_another_thread(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS)
    faults: list[str] = []

    def beside() -> None:
        for n in range(30):
            result = hvd.allreduce(torch.tensor([float(rank + n)]), op=hvd.Sum, name=f"thread.{n % 3}").item()
            if result != size * (size - 1) / 2 + size * n:
                faults.append(f"{n}: {result}")
            time.sleep(0.002)

    thread = threading.Thread(target=beside)
    thread.start()
    for number in range(step, step + 60):
        steps.step(number)
    thread.join()
    assert not faults, faults
    hand.end()


@ranks(3, env=ARMED | {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_another_process_set_within_steps(rank: int, size: int) -> None:
    pair = hvd.add_process_set([0, 2])
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS)

    def of_the_pair(number: int) -> None:
        if rank != 1 and number % 3 == 0:
            total = hvd.allreduce(torch.tensor([float(rank + number)]), op=hvd.Sum, name="pair", process_set=pair)
            assert total.item() == 2 + 2 * number

    for number in range(step, step + 12):
        steps.step_around(number, 3, functools.partial(of_the_pair, number))
    hvd.barrier()
    hvd.remove_process_set(pair)
    hand.end()


@ranks(2, 3, env=ARMED)
def test_plans_that_change_while_steps_are_armed(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS)
    shapes = [(1, 5), (3, 3), (2, 2, 2), (6,), (1, 1, 1, 1, 1, 1)]
    begin = step

    def changing(number: int) -> None:
        turn, place = divmod(number - begin, 9)
        if rank == 0 and place == 0:
            hand.send(groups_of(hand, "giving.", shapes[turn % len(shapes)]))
        steps.step(number)

    for number in range(begin, begin + 90):
        changing(number)
    step_armed(changing, 10, begin=begin + 90)
    hand.end()


@ranks(3, env=ARMED)
def test_ranks_that_join(rank: int, size: int) -> None:
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "giving.", GROUPS)
    for turn in range(3):
        last = [(one + turn) % size for one in range(size)]  # so many more steps does a rank make
        for number in range(last[rank]):
            going = [one for one in range(size) if last[one] > number]
            for name in NAMES:
                steps.start(name, step + number)
            for name in NAMES:
                result = hvd.synchronize(steps.handles.pop(name))
                expected = sum(steps.value(one, name, step + number) for one in going)
                assert (result == expected).all(), (turn, number, name, result[:2], expected)
        assert hvd.join() == last.index(max(last))
        for number in range(step, step + 5):
            steps.step(number)
    assert torch.equal(hvd.allgather(torch.tensor([rank]), name="joined"), torch.arange(size))
    hand.end()


def _shut_down(rank: int, size: int) -> str:
    steps = TorchSteps(rank, size, SIZES)
    _, step = arm(steps.step, "giving.", GROUPS)
    if rank == 0:
        for name in NAMES[:3]:
            steps.start(name, step)
        hvd.shutdown()
        return "shutdown"
    errors: list[Any] = []
    for name in NAMES:
        try:
            steps.start(name, step)  # fails, too, if rank 0 was faster
        except Exception as error:
            errors.append(error)
    for name in NAMES[2:]:
        try:
            hvd.synchronize(steps.handles[name])
        except Exception as error:
            errors.append(error)
    assert errors
    return str(errors[0])


def test_shutdown_in_the_middle_of_a_step() -> None:
    """No rank waits until Gloo gives up."""
    env = ARMED | {"HOROVOD_GLOO_TIMEOUT_SECONDS": "600"}
    assert "shut" in run_ranks(_shut_down, 3, env=env, fresh=True)[1].lower()
