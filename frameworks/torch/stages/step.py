"""The step of a stage's optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from paceline.torch.stages.correction import Correction


class OptimizerStep:
    """Steps with rates times a factor, and has T2's running mean follow. `optimizer`: None without parameters."""

    def __init__(self, optimizer: torch.optim.Optimizer | None, correction: Correction | None) -> None:
        self._optimizer, self._correction = optimizer, correction

    def __call__(self, factor: float) -> None:
        """Use up the gradients."""
        if self._optimizer is not None:
            if self._correction is not None:
                self._correction.before_update()
            with _rates_times(self._optimizer, factor):
                self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            if self._correction is not None:
                self._correction.after_update()
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            torch.clear_autocast_cache()  # it has casts of the weights before


@contextlib.contextmanager
def _rates_times(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """For one step: schedulers find the rates that they have set."""
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
