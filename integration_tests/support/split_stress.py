"""Two trainings with the split exchange and random delays, gradients, reads and plans: what one rank does.

Gradients are whole eighths and the learning rate is a quarter, so every sum and update is exact, and weights equal one
process's to the last bit.
"""

from __future__ import annotations

import random
import time
from typing import Any

import torch

from integration_tests.support.arming import state
from integration_tests.support.merging import ask_for, repeat

RATE = 0.25
PLAN_STEPS = 100
# Elements of the parameters; the first model has shards of several sizes and empty ones, the second one is large.
MODELS = ((1, 3, 17, 1001, 20_011, 7, 10_007), (40_099, 5, 20_011))


class _Training:
    """A model of vectors, its optimizer, and the weights that one process would have."""

    def __init__(self, rank: int, size: int, seed: int, number: int) -> None:
        import paceline.torch as hvd

        self.rank, self.size, self.seed, self.number = rank, size, seed, number
        self.parameters = [torch.nn.Parameter(torch.zeros(count)) for count in MODELS[number]]
        self.expected = [torch.zeros(count) for count in MODELS[number]]
        self._numbers = [torch.arange(count) * (2 * at + 1) for at, count in enumerate(MODELS[number])]
        named = [(f"splitstress.{seed}.{number}.{at:02}", one) for at, one in enumerate(self.parameters)]
        self.optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.SGD(self.parameters, lr=RATE), named, exchange="split", op=hvd.Sum
        )

    def _gradient(self, rank: int, step: int, at: int) -> torch.Tensor:
        return ((self._numbers[at] + 3 * rank + 5 * step) % 8 - 3) / 8

    def _missing(self, rank: int, step: int) -> set[int]:
        """Parameters without a gradient on this rank: sometimes one of its own, sometimes one of all ranks."""
        found = set()
        for seed, chance in ((f"{self.seed} {self.number} {step}", 0.02), (f"{self.seed} {step} {rank}", 0.005)):
            dice = random.Random(seed)
            if dice.random() < chance:
                found.add(dice.randrange(len(self.parameters)))
        return found

    def step(self, step: int, order: list[int]) -> None:
        """Make an update; weights are read in this order."""
        self.optimizer.zero_grad()
        missing = self._missing(self.rank, step)
        sum(
            (self.parameters[at] * self._gradient(self.rank, step, at)).sum() for at in order if at not in missing
        ).backward()
        self.optimizer.step()
        for rank in range(self.size):
            missing = self._missing(rank, step)
            for at in order:
                if at not in missing:
                    self.expected[at] -= RATE * self._gradient(rank, step, at)

    def check(self, step: int, at: int) -> None:
        """Read a weight, which may be in flight."""
        wrong = int((self.parameters[at] != self.expected[at]).sum())
        assert not wrong, f"rank {self.rank}, seed {self.seed}, step {step}, weight {self.number}.{at}: {wrong} wrong"


def torch_steps(rank: int, size: int, steps: int, seed: int = 7, least: int = 0) -> int:
    """Make steps whose weights are checked; return how many were armed. Makes more steps until `least` were."""
    import paceline.torch as hvd

    hvd.init()
    own, same, before = random.Random(1000 * seed + rank), random.Random(seed), state().steps
    trainings = [_Training(rank, size, seed, number) for number in range(len(MODELS))]

    def step_of(step: int) -> None:
        if step % PLAN_STEPS == 0:
            ask_for("torch", same.choice(["none", "optimal", "optimal", "threshold"]))
        for one in trainings:
            order = list(range(len(one.parameters)))
            if same.random() < 0.05:
                same.shuffle(order)
            if own.random() < 0.05:
                time.sleep(own.random() * 0.01)
            one.step(step, order)
        kind, one = same.random(), same.choice(trainings)
        if kind < 0.02:
            total = hvd.allreduce(torch.tensor([float(rank + step)]), op=hvd.Sum, name="splitstress.metric")
            assert total.item() == size * (size - 1) / 2 + size * step
        elif kind < 0.04:
            other = hvd.broadcast(torch.tensor([rank * 10 + step]), size - 1, name="splitstress.other")
            assert other.item() == (size - 1) * 10 + step
        elif kind < 0.05:
            one.optimizer.consolidate_state_dict()
        if own.random() < 0.1:
            one.check(step, own.randrange(len(one.parameters)))

    for step in range(steps - 1):
        step_of(step)
    repeat("torch", step_of, lambda: state().steps - before >= least, steps - 1, state)
    for one in trainings:
        for at in range(len(one.parameters)):
            one.check(steps, at)
    armed = state().steps - before
    ask_for("torch", "threshold")
    return armed
