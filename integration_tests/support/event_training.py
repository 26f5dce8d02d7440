"""A training of three parameters under one exchange of the table of events, compared with one process.

Gradients are whole numbers that depend on no weight, and plain SGD adds them up: a gradient that is lost, doubled or
given to another parameter shows by its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from integration_tests.support import arming
from integration_tests.support.events import ARMED, RESIDUAL
from integration_tests.support.merging import ask_for, repeat, step_until
from integration_tests.support.training_events import LARGEST, LOST, RATE, part

ELEMENTS = 300
STEPS = 12  # of an armed training after its event: more than are negotiated again


def exchange_of(column: str, hvd: Any, size: int) -> Any:
    """The exchange of a column; a partial one that waits for all equals one process in every step."""
    others = {
        "pipelined": "pipelined",
        "partial": hvd.Partial(quorum=size),
        "local": hvd.Local(sync_every=4),
        "split": "split",
    }
    return others.get(column, "sync")


class EventTraining:
    """Parameters "a", "b" and "c", their wrapped optimizer, and what one process makes of the same gradients."""

    def __init__(self, rank: int, size: int, column: str, label: str, passes: int = 1) -> None:
        import paceline.torch as hvd

        self.hvd, self.rank, self.size, self.column, self.label, self.passes = hvd, rank, size, column, label, passes
        self.codec = "q8" if column == RESIDUAL else "none"
        self.dtype = torch.float32 if column == RESIDUAL else torch.float64
        self.weights = {name: torch.nn.Parameter(torch.zeros(ELEMENTS, dtype=self.dtype)) for name in "abc"}
        self.wanted = {name: torch.zeros(ELEMENTS, dtype=torch.float64) for name in "abc"}
        self.number = 0
        self.lost = LOST[self.codec] / 5  # of the largest gradient, by rounding; an event may take more
        self.wrap()

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.column}, {self.label}, step {self.number}"

    def wrap(self) -> None:
        """Make the optimizer of the present parameters."""
        self.optimizer = self.hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights.values(), lr=RATE),
            [(f"{self.label}.{name}", one) for name, one in self.weights.items()],
            exchange=exchange_of(self.column, self.hvd, self.size),
            codec=self.codec,
            backward_passes_per_step=self.passes,
        )

    def gradient(self, name: str, rank: int, step: int) -> Tensor:
        return part(rank, step, list(self.weights).index(name), self.weights[name].numel()).to(self.dtype)

    def backward(self, absent: str = "", counted: bool = True, scale: Callable[[Tensor], Tensor] | None = None) -> None:
        """One backward pass of a loss; `absent` have no gradient on this rank, `counted`: an update comes of it."""
        used = [name for name, one in self.weights.items() if one.requires_grad and name not in absent]
        losses = [(self.weights[name] * self.gradient(name, self.rank, self.number)).sum() for name in used]
        loss = torch.stack(losses).sum()
        (loss if scale is None else scale(loss)).backward()
        if counted:
            self.count([name for name, one in self.weights.items() if one.requires_grad])
        self.number += 1

    def count(self, names: list[str], without: tuple[str, int] | None = None) -> None:
        """One process makes an update of these; `without`: a parameter that has no gradient on one rank."""
        for name in names:
            for rank in range(self.size):
                if (name, rank) != without:
                    self.wanted[name] -= RATE * self.gradient(name, rank, self.number).double() / self.size

    def step(self, _number: int = 0) -> None:
        self.optimizer.zero_grad()
        for _ in range(self.passes):
            self.backward()
        self.optimizer.step()

    def steps(self) -> None:
        """Some updates, until steps are armed in that column."""
        if self.column != ARMED:
            for _ in range(3):
                self.step()
            return
        ask_for("torch", "none")
        step_until("torch", self.step)
        repeat("torch", self.step, arming.is_armed, about=arming.state)

    def go_on(self) -> None:
        """After the event: some updates, and a drain; weights equal one process on every rank."""
        for _ in range(3 if self.column != ARMED else STEPS):
            self.step()
        self.check()

    def check(self, names: str = "abc") -> None:
        """Drain, and compare these parameters."""
        self.optimizer.drain()
        allowed = RATE * LARGEST * self.lost * self.size
        for name in names:
            off = (self.weights[name].detach().double() - self.wanted[name]).abs().max().item()
            assert off <= allowed, f"{self}: {name} is off by {off / RATE * self.size:.6g} of summed gradients"
