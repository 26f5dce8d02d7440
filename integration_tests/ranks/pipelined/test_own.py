"""compensation="own": passes use weights moved by this rank's gradient in flight; against one process."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

STEPS, ROWS = 12, 6
MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "adamw-amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
}


def _net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def _data(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    shape = (STEPS, size, ROWS)
    return tuple(torch.randn(*shape, width, generator=generator).double() for width in (4, 2))


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])


def _loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return ((model(batch[0]) - batch[1]) ** 2).mean()


class _Played:
    """One process that plays all ranks."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer], size: int, clip: float) -> None:
        self.model, self._make, self._clip = _net(), make, clip
        self._optimizer = make(self.model.parameters())
        self._flight: list[list[torch.Tensor]] = []
        self._size = size
        self.ahead = [self.model] * size  # the model that each rank's next pass uses

    def _ahead(self, rank: int) -> nn.Module:
        moved = copy.deepcopy(self.model)
        optimizer = self._make(moved.parameters())
        optimizer.load_state_dict(copy.deepcopy(self._optimizer.state_dict()))
        self._step(moved, optimizer, self._flight[rank])
        return moved

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, gradients: list[torch.Tensor]) -> None:
        for one, gradient in zip(model.parameters(), gradients, strict=True):
            one.grad = gradient.clone()
        if self._clip:
            nn.utils.clip_grad_norm_(model.parameters(), self._clip)
        optimizer.step()

    def update(
        self, batches: list[list[tuple[torch.Tensor, torch.Tensor]]], before: list[float], weights: list[float]
    ) -> None:
        """`batches`: of each pass, of each rank; weights of the update before and of this one."""
        submitted = []
        for rank in range(self._size):
            model = self.ahead[rank]
            model.zero_grad()
            for passes in batches:
                (_loss(model, passes[rank]) / len(batches)).backward()
            submitted.append([one.grad.clone() for one in model.parameters()])
        self.finish(before)
        # A rank without data has zeros.
        self._flight = [[one * bool(weight) for one in many] for weight, many in zip(weights, submitted, strict=True)]
        self.ahead = [self._ahead(rank) for rank in range(self._size)]

    def finish(self, weights: list[float]) -> None:
        """Make the update in flight; `weights`: of the ranks' gradients in it."""
        if self._flight:
            mean = [
                sum(weight * one for weight, one in zip(weights, many, strict=True)) / sum(weights)
                for many in zip(*self._flight, strict=True)
            ]
            self._step(self.model, self._optimizer, mean)


@pytest.mark.parametrize("features", ["", "clipped", "passes", "weights"])
@ranks(3, more=(2,))
def test_own_as_one_process(rank: int, size: int, features: str) -> None:
    x, y = _data(size)
    for name, make in MAKERS.items():
        model, passes, clip = _net(), 2 if features == "passes" else 1, 0.3 if features == "clipped" else 0.0
        optimizer = hvd.DistributedOptimizer(
            make(model.parameters()),
            [(f"{name}{features}.{key}", one) for key, one in model.named_parameters()],
            exchange=hvd.Pipelined(compensation="own"),
            backward_passes_per_step=passes,
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        played = _Played(make, size, clip)
        later = torch.optim.lr_scheduler.ExponentialLR(played._optimizer, 0.9)
        before = weights = [1.0] * size
        for step in range(0, STEPS - 1, passes):
            optimizer.zero_grad()
            if features == "weights":
                before, weights = weights, [float((step + one) % 3) for one in range(size)]
                optimizer.weight = weights[rank]
            for one in range(passes):
                (_loss(model, (x[step + one, rank], y[step + one, rank])) / passes).backward()
            if clip:
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            schedule.step()
            batches = [[(x[step + one, who], y[step + one, who]) for who in range(size)] for one in range(passes)]
            played.update(batches, before, weights)
            later.step()
            torch.testing.assert_close(_flat(model), _flat(played.ahead[rank]), rtol=0, atol=1e-9)
            with optimizer.real_weights():
                torch.testing.assert_close(_flat(model), _flat(played.model), rtol=0, atol=1e-9)
        assert optimizer.drain() == 1
        if not clip:  # a drain does not clip
            played.finish(weights)
            torch.testing.assert_close(_flat(model), _flat(played.model), rtol=0, atol=1e-9)


@ranks(2)
def test_own_goes_on_bit_for_bit(rank: int, size: int) -> None:
    x, y = _data(size)
    exchange = hvd.Pipelined(warmup_steps=2, compensation="own")

    def train(model: nn.Module, optimizer: Any, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            _loss(model, (x[step, rank], y[step, rank])).backward()
            optimizer.step()

    def wrapped(model: nn.Module) -> Any:
        held = torch.optim.Adam(model.parameters(), lr=0.05)
        return hvd.DistributedOptimizer(held, model.named_parameters(), exchange=exchange)

    for before in (1, 3, 6):
        model = _net()
        optimizer = wrapped(model)
        train(model, optimizer, range(before))
        file = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict()], file)
        train(model, optimizer, range(before, STEPS))
        optimizer.drain()
        again = _net()
        resumed = wrapped(again)
        saved = torch.load(io.BytesIO(file.getvalue()))
        again.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        train(again, resumed, range(before, STEPS))
        resumed.drain()
        assert torch.equal(_flat(model), _flat(again)), before


@ranks(2)
def test_own_under_a_scaled_loss(rank: int, size: int) -> None:
    """As without scaling; a gradient that overflows moves nothing, and its update is left out."""
    x, y = _data(size)
    found = []
    for scaled in (False, True):
        model = _net().float()
        held = torch.optim.Adam(model.parameters(), lr=0.05)
        named = [(f"scaled{scaled}.{key}", one) for key, one in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(held, named, exchange=hvd.Pipelined(correction="own"))
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        for step in range(6):
            optimizer.zero_grad()
            batch = x[step, rank].float(), y[step, rank].float()
            scaler.scale(_loss(model, batch)).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.drain()
        found.append(_flat(model))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-5)


@ranks(2)
def test_own_refused(rank: int, size: int) -> None:
    with pytest.raises(UserError, match=r"k=3(.|\n)*k=2 with compensation='own'"):
        hvd.Pipelined(k=3, compensation="own")
    with pytest.raises(UserError, match=r"compensation='mine'(.|\n)*Use 'own'"):
        hvd.Pipelined(compensation="mine")
    with pytest.raises(UserError, match=r"correction=0.1(.|\n)*not both"):
        hvd.Pipelined(correction=0.1, compensation="own")
