"""Random plans, orders, missing gradients and other operations under armed steps: every sum is exact, nothing hangs."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from integration_tests.support.arming import ARMED, TorchSteps, end, meet, state
from integration_tests.support.merging import ByHand
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks

# Ranks and steps.
RUNS = [
    (2, 200),
    more(3, 200),
    pytest.param(2, 2000, marks=pytest.mark.soak),
    pytest.param(3, 2000, marks=pytest.mark.soak),
    pytest.param(4, 2000, marks=pytest.mark.soak),
]
PLAN_STEPS = 25
TENSORS = 11


def _groups(names: list[str], chance: random.Random) -> list[list[str]]:
    """Neighbours, most of the time all of them."""
    names = [name for name in names if chance.random() < 0.97]
    groups: list[list[str]] = []
    while names:
        count = chance.randint(1, 4)
        groups.append(names[:count])
        names = names[count:]
    return groups


def _sizes(label: str) -> dict[str, int]:
    same = random.Random(98)  # the same sizes on every rank
    return {f"{label}.{n:02}": same.choice([1, 3, 17, 100, 1001, 40_099]) for n in range(TENSORS)}


def _torch(rank: int, size: int, steps: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    hand = ByHand("torch").start()
    steps_of = TorchSteps(rank, size, _sizes("armedstress.torch"))
    names = list(steps_of.sizes)
    own, same = random.Random(1000 + rank), random.Random(7)
    for step in range(steps):
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(_groups(sorted(hand.names("armedstress.torch")), random.Random(step)), patience_s=0.1)
        kind = same.random()
        order = [name for name in names if kind > 0.02 or same.random() < 0.9]  # all ranks miss the same
        if own.random() < 0.2:
            own.shuffle(order)
        between = same.randrange(len(order)) if 0.02 < kind < 0.05 else -1
        for place, name in enumerate(order):
            if own.random() < 0.01:
                time.sleep(own.random() * 0.01)
            if place == between:
                other = hvd.broadcast(torch.tensor([rank * 10 + step]), size - 1, name="armedstress.other")
                assert other.item() == (size - 1) * 10 + step
            steps_of.start(name, step)
        own.shuffle(order)
        for name in order:
            steps_of.finish(name, step)
        if kind > 0.9:
            total = hvd.allreduce(torch.tensor([float(rank + step)]), op=hvd.Sum, name="armedstress.metric")
            assert total.item() == size * (size - 1) / 2 + size * step
    hvd.barrier()
    assert state().steps > steps // 10, state()
    end(hand)


def _tensorflow(rank: int, size: int, steps: int) -> None:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    hand = ByHand("tensorflow").start()
    sizes = _sizes("armedstress.tensorflow")
    names = list(sizes)
    own, same = random.Random(1000 + rank), random.Random(7)

    def exchange(chosen: list[str]) -> Any:
        @tf.function(autograph=False)
        def run(first: Any) -> list[Any]:
            return [
                hvd.allreduce(tf.fill([sizes[name]], first + float(names.index(name))), name=name, op=hvd.Sum)
                for name in chosen
            ]

        return run

    all_of_them, most_of_them = exchange(names), exchange(names[:4] + names[5:])
    for step in range(steps):
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(_groups(sorted(hand.names("armedstress.tensorflow")), random.Random(step)), patience_s=0.1)
        if own.random() < 0.05:
            time.sleep(own.random() * 0.01)
        few = same.random() < 0.02
        results = (most_of_them if few else all_of_them)(tf.constant(float(100 * rank + step)))
        for name, result in zip(names[:4] + names[5:] if few else names, results, strict=True):
            expected = 50 * size * (size - 1) + size * (step + names.index(name))
            assert (result.numpy() == expected).all(), (step, name, result.numpy()[:2], expected)
    meet("tensorflow")
    assert state("tensorflow").steps > steps // 10, state("tensorflow")
    end(hand, "tensorflow")


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("size", "steps"), RUNS)
@pytest.mark.parametrize("body", [_torch, _tensorflow], ids=["torch", "tensorflow"])
def test_sums_are_exact_whatever_comes(body: Any, size: int, steps: int) -> None:
    run_ranks(body, size, steps, timeout_s=900, env=ARMED)
