"""Random plans, orders, missing gradients and other operations under armed steps: every sum is exact, nothing hangs."""

from __future__ import annotations

import random
import time
from typing import Any

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf

from integration_tests.support.armed_stress import PLAN_STEPS, groups, sizes_of, torch_steps
from integration_tests.support.arming import ARMED, state
from integration_tests.support.merging import ByHand, repeat
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


def _torch(rank: int, size: int, steps: int) -> None:
    torch_steps(rank, size, steps, least=steps // 10)


def _tensorflow(rank: int, size: int, steps: int) -> None:
    hand = ByHand("tensorflow").start()
    sizes = sizes_of("armedstress.tensorflow")
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
    before = state("tensorflow").steps

    def step_of(step: int) -> None:
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(groups(sorted(hand.names("armedstress.tensorflow")), random.Random(step)), timeout_s=0.1)
        if own.random() < 0.05:
            time.sleep(own.random() * 0.01)
        few = same.random() < 0.02
        results = (most_of_them if few else all_of_them)(tf.constant(float(100 * rank + step)))
        for name, result in zip(names[:4] + names[5:] if few else names, results, strict=True):
            expected = 50 * size * (size - 1) + size * (step + names.index(name))
            assert (result.numpy() == expected).all(), (step, name, result.numpy()[:2], expected)

    for step in range(steps - 1):
        step_of(step)
    repeat("tensorflow", step_of, lambda: state("tensorflow").steps - before >= steps // 10, steps - 1)
    hand.end()


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("size", "steps"), RUNS)
@pytest.mark.parametrize("body", [_torch, _tensorflow], ids=["torch", "tensorflow"])
def test_sums_are_exact_whatever_comes(body: Any, size: int, steps: int) -> None:
    run_ranks(body, size, steps, timeout_s=900, env=ARMED)
