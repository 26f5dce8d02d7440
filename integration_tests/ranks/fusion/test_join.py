"""Ranks that finish early (Join) under an active plan; plans that are sent meanwhile."""

from __future__ import annotations

import importlib
import random
import time
from typing import Any

import pytest
import tensorflow as tf
import torch

from integration_tests.support.merging import ByHand, ask_for, step_until
from integration_tests.support.ranks import ranks

ROUNDS = 6
TENSORS = 5


def _torch_sums(label: str) -> Any:
    import horovod.torch as hvd

    def sums(values: list[float]) -> list[list[float]]:
        handles = [
            hvd.allreduce_async_(torch.full((500 * n + 1,), value), name=f"{label}.{n}", op=hvd.Sum)
            for n, value in enumerate(values)
        ]
        return [hvd.synchronize(handle).tolist() for handle in handles]

    return sums


def _tensorflow_sums(label: str) -> Any:
    import horovod.tensorflow as hvd

    @tf.function
    def exchange(values: Any) -> list[Any]:
        return [
            hvd.allreduce(tf.fill([500 * n + 1], values[n]), name=f"{label}.{n}", op=hvd.Sum) for n in range(TENSORS)
        ]

    def sums(values: list[float]) -> list[list[float]]:
        return [result.numpy().tolist() for result in exchange(tf.constant(values))]

    return sums


@pytest.mark.parametrize("library", ["torch", "tensorflow"])
@ranks(3)
def test_ranks_that_finish_at_different_steps(rank: int, size: int, library: str) -> None:
    hvd = importlib.import_module(f"horovod.{library}")
    hvd.init()
    label = f"join.{library}"
    sums = {"torch": _torch_sums, "tensorflow": _tensorflow_sums}[library](label)
    hand = ByHand(library).start()
    same, own = random.Random(5), random.Random(rank)
    plans = 0
    names: list[str] = []
    for turn in range(ROUNDS):
        # Different ranks are the last; the one that sends plans is so in the second round and joins first in the third.
        lengths = [same.randint(2, 9) for _ in range(size)]
        lengths[0] = {1: 12, 2: 1}.get(turn, lengths[0])
        for step in range(lengths[rank]):
            values = [float(1000 * rank + 10 * step + n) for n in range(TENSORS)]
            present = [r for r in range(size) if step < lengths[r]]
            expected = [sum(1000.0 * r + 10 * step + n for r in present) for n in range(TENSORS)]
            assert sums(values) == [[value] * (500 * n + 1) for n, value in enumerate(expected)], (turn, step)
            if names and rank == 0 and step >= lengths[1] and step % 2:  # others may have joined
                hand.send([names] if plans % 2 else [names[1:3], names[3:]], timeout_s=0.2)
                plans += 1
            time.sleep(own.random() * 0.003)
        if rank == 0 and turn == 2:
            hand.send([names[::2], names[1::2]], timeout_s=0.2)  # just before this rank joins
            plans += 1
        assert hvd.join() >= 0
        # Everyone is there again, and so is every plan that was sent.
        plans = hvd.broadcast_object(plans, 0, name=f"{label}.plans")
        hand.in_force(plans)
        names = sorted(hand.names(label))
        assert len(names) == TENSORS
        if rank == 0:
            hand.send([names] if turn % 2 else [names[:2], names[2:]], timeout_s=0.2)
        plans += 1
        hand.in_force(plans)
        hvd.broadcast_object(turn, 0, name=f"{label}.turn")
    hand.end()


@ranks(3, more=(5,), hvd="horovod.torch")
def test_driver_goes_on_after_a_join(rank: int, size: int, hvd: Any) -> None:
    sums = _torch_sums("driven")

    def step_of(step: int) -> None:
        whole = sum(range(size))
        assert sums([float(rank + n) for n in range(4)]) == [[whole + size * n] * (500 * n + 1) for n in range(4)]

    ask_for("torch", "optimal")
    for _ in range(3 * (size - rank)):  # the plan is still in the making
        sums([1.0] * 4)
    hvd.join()
    step_until("torch", step_of)
    for _ in range(2 + 3 * rank):
        sums([1.0] * 4)
    hvd.join()
    for step in range(3):
        step_of(step)
    ask_for("torch", "threshold")
