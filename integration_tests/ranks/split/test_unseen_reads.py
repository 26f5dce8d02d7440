"""Code that reads parameters without a torch function: it never gets old weights in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

STEPS = 6


def _model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(9, 40), nn.Tanh(), nn.Linear(40, 2)).double()


def _loaded(model: nn.Module, folder: Any) -> nn.Module:
    torch.jit.script(model).save(str(folder))
    return torch.jit.load(str(folder))


KINDS: dict[str, Callable[[nn.Sequential, str], nn.Module]] = {
    "scripted": lambda model, _: torch.jit.script(model),
    "traced": lambda model, _: torch.jit.trace(model, torch.zeros(1, 9, dtype=torch.float64)),
    "loaded": _loaded,
    "last layer": lambda model, _: nn.Sequential(*model[:-1], torch.jit.script(model[-1])),
    "beside": lambda model, _: [model, torch.jit.script(model)][0],
}


def _trained(model: nn.Module, optimizer: Any, batches: list[Tensor]) -> list[Tensor]:
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return [one.detach().clone() for one in model.parameters()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fusion", ["none", "optimal"])
@ranks(2, more=(3,), timeout_s=60)
def test_models_of_torchscript_equal_one_process(rank: int, size: int, kind: str, fusion: str, tmp_path: Any) -> None:
    torch.manual_seed(4)
    batches = [torch.randn(size, 5, 9, dtype=torch.float64) for _ in range(STEPS)]
    alone = _model()
    expected = _trained(alone, torch.optim.SGD(alone.parameters(), lr=0.3), [one.flatten(0, 1) for one in batches])
    model = KINDS[kind](_model(), str(tmp_path / f"{rank}.pt"))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.3), model.named_parameters(), exchange="split", fusion=fusion
    )
    found = _trained(model, optimizer, [one[rank] for one in batches])
    optimizer.drain()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@torch.jit.script
def _scaled(values: Tensor, weight: Tensor) -> Tensor:
    return values * weight


class _Scale(nn.Module):
    """Reads its weight in a function of TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(1.0, 2.0, 9, dtype=torch.float64))

    def forward(self, values: Tensor) -> Tensor:
        return _scaled(values, self.weight)


@pytest.mark.parametrize("drains", [False, True])
@ranks(2, more=(3,), timeout_s=60, fresh=True)
def test_an_unseen_read_of_an_old_weight_is_an_error(rank: int, size: int, drains: bool) -> None:
    torch.manual_seed(4)
    batches = [torch.randn(size, 5, 9, dtype=torch.float64) for _ in range(STEPS)]
    alone, model = _Scale(), _Scale()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.3), model.named_parameters(), exchange="split"
    )
    if not drains:
        with pytest.raises(UserError, match=rf"Rank {rank}: the new value of 'weight' was still in flight"):
            _trained(model, optimizer, [one[rank] for one in batches])
        hvd.shutdown()
        return
    for batch in batches:
        _trained(alone, torch.optim.SGD(alone.parameters(), lr=0.3), [batch.flatten(0, 1)])
        _trained(model, optimizer, [batch[rank]])
        optimizer.drain()
        torch.testing.assert_close(model.weight, alone.weight, rtol=1e-12, atol=1e-12)
