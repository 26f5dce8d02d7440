"""Ranks with unequally many samples, and one process that has all of them: sum(w g) / sum(w) must be its mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

LIMIT = 1e-12  # in float64
Batch = tuple[torch.Tensor, torch.Tensor]


def net(seed: int = 7) -> torch.nn.Module:
    """The same small net on every rank, in float64; odd sizes."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).double()


def rows(rank: int, step: int) -> int:
    """Samples of a rank in a step: odd numbers of them, and none on one rank of most steps."""
    return [24, 8, 0, 13, 1][(rank + step) % 5]


def batch(rank: int, step: int, count: int | None = None) -> Batch:
    """The batch of a rank, of `count` samples, `rows` unless given."""
    data = torch.Generator().manual_seed(1000 * step + rank)
    number = rows(rank, step) if count is None else count
    return (
        torch.randn(number, 5, generator=data, dtype=torch.float64),
        torch.randn(number, 3, generator=data, dtype=torch.float64),
    )


def together(batches: Sequence[Batch]) -> Batch:
    """One batch of all samples."""
    inputs, targets = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def loss_of(model: torch.nn.Module, one: Batch) -> Any:
    """The mean over the samples: NaN where there is none."""
    return torch.nn.functional.mse_loss(model(one[0]), one[1])


def train_alone(batches: Sequence[Batch], late: int = 0, begin: torch.nn.Module | None = None) -> torch.nn.Module:
    """Return a model trained by one process; gradients are used `late` updates later, and drained at the end."""
    model = begin or net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    waiting: list[list[torch.Tensor]] = []
    for one in batches:
        optimizer.zero_grad()
        loss_of(model, one).backward()
        waiting.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
        if len(waiting) > late:
            _apply(model, optimizer, waiting.pop(0))
    for gradients in waiting:
        _apply(model, optimizer, gradients)
    return model


def _apply(model: torch.nn.Module, optimizer: Any, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def assert_equal(model: torch.nn.Module, expected: torch.nn.Module) -> None:
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=LIMIT)
