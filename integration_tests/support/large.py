"""Training with large gradients, and the memory of the process that runs it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from integration_tests.support.merging import Messages

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The allocator returns freed blocks of this size to the kernel at once. Odd: no tensor ends where a page does.
LARGE = [10_000_001] * 3
LARGE_BYTES = 4 * sum(LARGE)
# Elements of tensors, of which the first and the third exceed 16 MiB: they are messages of their own.
MIXED = [4_200_001, 5, 4_300_003, 1023]


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def _slope(rank: int, step: int, place: int) -> int:
    return 1 + 1000 * rank + 10 * step + place


class Training:
    """Weights with gradients that reveal their rank, step and place; sums over ranks are exact in float32."""

    def __init__(self, hvd: Any, rank: int, prefix: str, sizes: Sequence[int], exchange: Any, **options: Any) -> None:
        self._rank = rank
        self.weights = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
        for weight in self.weights:
            weight.grad = torch.ones_like(weight)  # kept, so that only the exchange's memory is new
        names = [(f"{prefix}.{n}", one) for n, one in enumerate(self.weights)]
        sgd = torch.optim.SGD(self.weights, lr=1.0)
        self.optimizer = hvd.DistributedOptimizer(sgd, names, op=hvd.Sum, exchange=exchange, **options)
        self.steps = 0

    def step(self) -> None:
        """Make a training step."""
        self.optimizer.zero_grad(set_to_none=False)
        for place, weight in enumerate(self.weights):
            (weight * float(_slope(self._rank, self.steps, place))).sum().backward()
        self.optimizer.step()
        self.steps += 1

    def check(self, members: Iterable[int], steps: int) -> None:
        """Assert that all weights have had the gradients of `steps` steps of every member once."""
        members = list(members)
        for place, weight in enumerate(self.weights):
            expected = -sum(_slope(rank, step, place) for rank in members for step in range(steps))
            assert bool((weight == expected).all()), (place, weight[0].item(), weight[-1].item(), expected)


def large_went_alone(messages: Messages, at_least: int) -> None:
    """Assert that `at_least` messages had large tensors of MIXED, and no other tensors."""
    large = [one for step in messages.stop() for one in step if any(name.endswith((".0", ".2")) for name in one)]
    assert len(large) >= at_least, large
    assert all(len(one) == 1 for one in large), large
