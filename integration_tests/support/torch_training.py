"""A small net and its data for tests with several ranks: every rank can compute the results of any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def net(seed: int = 7) -> torch.nn.Module:
    """The same small net on every rank; odd sizes."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


def loss_of(model: torch.nn.Module, rank: int, step: int) -> Any:
    """Loss of `model` on the batch of rank `rank` in step `step`."""
    data = torch.Generator().manual_seed(1000 * step + rank)
    inputs, targets = torch.randn(4, 5, generator=data), torch.randn(4, 3, generator=data)
    return torch.nn.functional.mse_loss(model(inputs), targets)


def update(optimizer: Any, loss: Any) -> None:
    """Make one update: zero_grad(), a backward pass, step()."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def closure_of(optimizer: Any, loss: Callable[[], Any]) -> Callable[[], Any]:
    """Return a closure for step() that computes `loss` and its gradients again."""

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def train(model: torch.nn.Module, optimizer: Any, rank: int, steps: int) -> torch.nn.Module:
    for step in range(steps):
        update(optimizer, loss_of(model, rank, step))
    return model


def train_alone(
    model: torch.nn.Module, optimizer: Any, size: int, steps: int, after_backward: Callable[[], None] = lambda: None
) -> torch.nn.Module:
    """Train on one rank, without Horovod, as `size` ranks that average their gradients do together."""
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(size):
            (loss_of(model, rank, step) / size).backward()
        after_backward()
        optimizer.step()
    return model


def parameters(model: torch.nn.Module) -> Any:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def gradients(model: torch.nn.Module) -> Any:
    """All gradients in one vector; parameters without one are left out."""
    return torch.cat([p.grad.to_dense().reshape(-1) for p in model.parameters() if p.grad is not None])


def assert_replicas_equal(model: torch.nn.Module, name: str) -> None:
    """Assert that all ranks hold the same parameters, bit for bit; a collective operation with the name `name`."""
    import horovod.torch as horovod

    mine = parameters(model).double()  # Horovod gathers no bfloat16
    everyone = horovod.allgather(mine.unsqueeze(0), name=name)
    for rank, theirs in enumerate(everyone):
        assert torch.equal(mine, theirs), f"parameters differ from those of rank {rank}"
