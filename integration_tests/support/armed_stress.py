"""Random plans, orders, missing gradients and other operations under armed steps: what one rank does."""

from __future__ import annotations

import random
import time

from integration_tests.support.arming import TorchSteps, state
from integration_tests.support.merging import ByHand, repeat

PLAN_STEPS = 25
TENSORS = 11


def groups(names: list[str], chance: random.Random) -> list[list[str]]:
    """Neighbours, most of the time all of them; some of those that are alone in parts."""
    names = [name for name in names if chance.random() < 0.97]
    made: list[list[str]] = []
    while names:
        count = chance.randint(1, 4)
        made += [names[:count]] * (chance.randint(1, 5) if count == 1 and chance.random() < 0.7 else 1)
        names = names[count:]
    return made


def sizes_of(label: str) -> dict[str, int]:
    """Elements by name, the same on every rank."""
    same = random.Random(98)
    return {f"{label}.{n:02}": same.choice([1, 3, 17, 100, 1001, 40_099]) for n in range(TENSORS)}


def torch_steps(rank: int, size: int, steps: int, seed: int = 7, timeout_s: float = 0.1, least: int = 0) -> int:
    """Steps in PyTorch whose sums are checked to the last bit; how many of them were armed.

    `timeout_s`: how long a group waits for its last gradient. Makes more steps until `least` were armed.
    """
    import horovod.torch as hvd
    import torch

    hvd.init()
    label, before = f"armedstress.torch.{seed}", state().steps
    hand = ByHand("torch").start()
    steps_of = TorchSteps(rank, size, sizes_of(label))
    names = list(steps_of.sizes)
    own, same = random.Random(1000 * seed + rank), random.Random(seed)

    def step_of(step: int) -> None:
        if rank == 0 and step and step % PLAN_STEPS == 0:
            hand.send(groups(sorted(hand.names(label)), random.Random(seed * steps + step)), timeout_s)
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

    for step in range(steps - 1):
        step_of(step)
    repeat("torch", step_of, lambda: state().steps - before >= least, steps - 1, state)
    armed = state().steps - before
    hand.end()
    return armed
