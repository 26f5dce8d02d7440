"""Armed steps of TensorFlow: functions whose operations are handed in by several threads, in any order."""

from __future__ import annotations

import time
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from integration_tests.support.arming import ARMED, arm, meet, state
from integration_tests.support.ranks import ranks

STEPS = 20
SIZES = (1000, 3, 1, 70_001, 17, 5)


@ranks(2, 3, more=(4,), env=ARMED)
def test_sums_of_a_function(rank: int, size: int) -> None:
    @tf.function(autograph=False)
    def exchange(first: Any) -> list[Any]:
        return [
            hvd.allreduce(tf.fill([elements], first + float(n)), name=f"tfarmed.{n}", op=hvd.Sum)
            for n, elements in enumerate(SIZES)
        ]

    def step_of(step: int) -> None:
        results = exchange(tf.constant(float(1000 * rank + step)))
        for n, result in enumerate(results):
            expected = 500 * size * (size - 1) + size * (step + n)
            assert (result.numpy() == expected).all(), (step, n, result.numpy()[:2], expected)

    hand, step = arm(step_of, "tfarmed.", (2, 3, 1), "tensorflow")
    before = state("tensorflow")
    for number in range(step, step + STEPS):
        if rank == number % size:
            time.sleep(0.005)
        step_of(number)
    meet("tensorflow")
    after = state("tensorflow")
    assert (after.state, after.steps - before.steps) == ("armed", STEPS), after
    hand.end()
