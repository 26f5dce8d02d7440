"""Random sizes, orders, delays and plans, for long: nothing hangs, nothing is mixed up, every sum is exact."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand
from integration_tests.support.more import first_of
from integration_tests.support.ranks import run_ranks

# Ranks and steps; `make soak` makes the long run, which takes minutes.
RUNS = [
    (4, 200),
    pytest.param(3, 600, marks=pytest.mark.soak),
    pytest.param(5, 400, marks=pytest.mark.soak),
    pytest.param(4, 2000, marks=pytest.mark.soak),
]
PLAN_STEPS = 20
TENSORS = 11


def _sizes(label: str) -> dict[str, int]:
    same = random.Random(99)  # the same sizes on every rank
    return {f"stress.{label}.{n}": same.choice([1, 3, 17, 100, 1001, 4099]) for n in range(TENSORS)}


def _random_groups(names: list[str], chance: random.Random) -> list[list[str]]:
    """Any partition, of neighbours or not, with some tensors left out."""
    shuffled = [name for name in names if chance.random() < 0.9]
    if chance.random() < 0.5:
        chance.shuffle(shuffled)
    count = chance.randint(1, max(1, len(shuffled)))
    groups: list[list[str]] = [[] for _ in range(count)]
    for name in shuffled:
        groups[chance.randrange(count)].append(name)
    return [group for group in groups if group]


def _value(rank: int, step: int, number: int) -> float:
    return float((rank + 1) * 1000 + step % 100 + number)


def _total(size: int, step: int, number: int) -> float:
    return sum(_value(rank, step, number) for rank in range(size))


def _torch(rank: int, size: int, count: int) -> None:
    import horovod.torch as hvd

    hvd.init()
    hand = ByHand("torch")
    hand.begin()
    hand.agreed()
    own, plans = random.Random(1000 + rank), random.Random(7)
    steps = TorchSteps(rank, size, _sizes("torch"))
    names = list(steps.sizes)
    for step in range(count):
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(_random_groups(hand.names("stress.torch"), plans), timeout_s=0.5)
        own.shuffle(names)
        for name in names:
            if own.random() < 0.02:
                time.sleep(own.random() * 0.003)
            steps.start(name, step)
        own.shuffle(names)
        for name in names:
            steps.finish(name, step)
    versions = hvd.allgather(torch.tensor([hand.state().version]), name="stress.torch.versions")
    assert versions.tolist() == [count // PLAN_STEPS - 1] * size
    hand.end()


def _tensorflow(rank: int, size: int, steps: int) -> None:
    """All operations are in one tf.function; its threads run them in arbitrary order."""
    import horovod.tensorflow as hvd

    hvd.init()
    hand = ByHand("tensorflow")
    hand.begin()
    hand.agreed()
    own, plans = random.Random(2000 + rank), random.Random(8)
    sizes = _sizes("tensorflow")
    names = list(sizes)

    @tf.function(reduce_retracing=True, autograph=False)
    def exchange(first: tf.Tensor) -> list[tf.Tensor]:
        return [
            hvd.allreduce(tf.fill([sizes[name]], first + float(number)), name=name, op=hvd.Sum)
            for number, name in enumerate(names)
        ]

    for step in range(steps):
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(_random_groups(hand.names("stress.tensorflow"), plans), timeout_s=0.5)
        if own.random() < 0.1:
            time.sleep(own.random() * 0.005)
        results = exchange(tf.constant(_value(rank, step, 0)))
        for number, result in enumerate(results):
            expected = _total(size, step, number)
            assert (result.numpy() == expected).all(), f"step {step}, {names[number]}: expected {expected}"
    versions = np.ravel(hvd.allgather(tf.constant([hand.state().version]), name="stress.tensorflow.versions"))
    assert versions.tolist() == [steps // PLAN_STEPS - 1] * size
    hand.end()


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("size", "steps"), RUNS)
@pytest.mark.parametrize("body", [_torch, _tensorflow], ids=["torch", "tensorflow"])
def test_sums_are_exact_whatever_the_plan(body: Any, size: int, steps: int) -> None:
    run_ranks(body, size, steps, timeout_s=900)


# Messages of a round end in an order of each rank's own: large and small ones, many in each of the slow cycles.
IN_FLIGHT = {
    "HOROVOD_FUSION_THRESHOLD": "0",
    "HOROVOD_CYCLE_TIME": "20",
    **debug(collective_block_bytes=16384),
}
FLYING = (200_003, 150_001, 100_003, 50_021, 30_011, 20_011, 3)


def _in_flight(rank: int, size: int, seed: int, turns: int) -> None:
    """New names, then a plan of them: all ranks have the same numbers, and every sum is exact."""
    import horovod.torch as hvd

    hvd.init()
    hand = ByHand("torch").start()
    same = random.Random(seed)
    for turn in range(turns):
        label = f"flight.{seed}.{turn:02}"
        steps = TorchSteps(rank, size, {f"{label}.{n:02}": same.choice(FLYING) for n in range(24)})
        for step in range(4):
            steps.step(step)
            if step == 0:
                everyones = hvd.allgather_object(hand.names(label), name=f"{label}.numbers")
                assert everyones == [everyones[0]] * size, [one[:4] for one in everyones]
                groups = _random_groups(everyones[0], random.Random(seed + turn))
                hand.follow(groups, timeout_s=0.5)
    hand.end()


@pytest.mark.parametrize("collective", first_of(("ring", "linear", "direct", "auto"), "ring"))
def test_plans_whose_messages_are_in_flight_together(collective: str) -> None:
    run_ranks(_in_flight, 3, 11, 3, env=IN_FLIGHT | {"PACELINE_COLLECTIVE": collective})
