"""A script of which one rank fails in one place: `failing_script.py SYSTEM PLACE RANK`; systems: ddp, pipeline."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

import paceline.torch as hvd

STEPS, FAILING_STEP, WIDTH = 6, 3, 4
system, place, failing = sys.argv[1], sys.argv[2], int(sys.argv[3])
step_number = 0


def raise_value_error() -> None:
    raise ValueError(f"{place} fails on purpose")


def use_too_much_memory() -> None:
    raise MemoryError("cannot allocate 64 GiB")


def find_nan() -> None:
    if not torch.isfinite(torch.tensor(float("nan"))):
        raise FloatingPointError("loss is nan")


def interrupt() -> None:
    raise KeyboardInterrupt


ACTIONS: dict[str, Callable[[], Any]] = {
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sys_exit": lambda: sys.exit(3),
    "os_exit": lambda: os._exit(4),
    "memory": use_too_much_memory,
    "nan": find_nan,
    "interrupt": interrupt,
}


def fail_at(here: str) -> None:
    """Fail if this rank is to fail here and now."""
    if place == here and hvd.rank() == failing and step_number == FAILING_STEP:
        ACTIONS.get(place, raise_value_error)()


class Backward(torch.autograd.Function):
    """The identity, whose backward pass may fail."""

    @staticmethod
    def forward(_context: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        fail_at("backward")
        return gradient


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        fail_at("forward")
        if place == "shapes" and hvd.rank() == failing and step_number == FAILING_STEP:
            value = torch.cat([value, value], dim=1)
        return Backward.apply(self.linear(value))


class FailingSGD(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        fail_at("optimizer")
        return super().step(closure)


def loss_function(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    fail_at("loss")
    return torch.nn.functional.mse_loss(output, target)


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of this rank; `uneven`: fewer on the rank that fails."""
    global step_number
    for step_number in range(STEPS):
        if place == "uneven" and hvd.rank() == failing and step_number == FAILING_STEP:
            return
        fail_at("data")
        for action in ACTIONS:
            fail_at(action)
        yield torch.ones(8, WIDTH), torch.zeros(8, WIDTH)


def make_optimizer(parameters: Any) -> FailingSGD:
    return FailingSGD(parameters, lr=0.01)


def main() -> None:
    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(hvd.size())))
    if system == "pipeline":
        pipeline = hvd.Pipeline(model, make_optimizer, loss_function, n_microbatches=2)
        for batch, target in batches():
            pipeline.step(batch, target)
        pipeline.drain()
        return
    optimizer = hvd.DistributedOptimizer(make_optimizer(model.parameters()), model.named_parameters())
    for batch, target in batches():
        optimizer.zero_grad()
        loss_function(model(batch), target).backward()
        optimizer.step()


main()
