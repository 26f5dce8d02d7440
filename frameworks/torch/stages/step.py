"""The step of a stage's optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch


class Around(Protocol):
    """Actions before and after the optimizer's step: T2's running mean, Nesterov's momentum."""

    def before_update(self) -> None:
        """Called before the optimizer's step."""
        ...

    def after_update(self) -> None:
        """Called after the optimizer changed the parameters."""
        ...


class OptimizerStep:
    """Optimizer step with learning rates times a factor.

    `optimizer`: None without parameters. `around`: the outermost first.
    """

    def __init__(self, optimizer: torch.optim.Optimizer | None, around: Sequence[Around]) -> None:
        self._optimizer, self._around = optimizer, around

    def __call__(self, factor: float) -> None:
        """Update the weights, and clear the gradients."""
        if self._optimizer is not None:
            for one in self._around:
                one.before_update()
            with rates_times(self._optimizer, factor):
                self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            for one in reversed(self._around):
                one.after_update()
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            torch.clear_autocast_cache()  # it holds casts of the old weights


@contextlib.contextmanager
def rates_times(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Context with learning rates times `factor`; afterwards schedulers find the rates they have set."""
    if factor == 1:
        yield
        return
    before = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = rate
