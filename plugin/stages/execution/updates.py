"""What a stage does with the gradients of a mini-batch: clipping, T1, the optimizer's step, T2's running mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from paceline.stages import corrections
from paceline.stages.execution.clipping import Clipping
from paceline.torch.stages.correction import Correction
from paceline.torch.stages.weights import Weights


class Updates:
    """Applies the gradients of mini-batches to one stage.

    `optimizer`: None for a stage without parameters. `asynchronous`: updates so far under an asynchronous schedule,
    which T1 counts.
    """

    def __init__(
        self,
        weights: Weights,
        optimizer: torch.optim.Optimizer | None,
        clipping: Clipping | None,
        correction: Correction | None,
        annealing_updates: int,
        tau_forward: float,
    ) -> None:
        self.asynchronous = 0
        self.optimizer = optimizer
        self._weights = weights
        self._clipping, self._correction = clipping, correction
        self._annealing, self._tau = annealing_updates, tau_forward

    def apply(self, synchronous: bool, keep: bool, as_previous: bool) -> None:
        """One update, after the last backward pass of a mini-batch. `keep`, `as_previous`: see Weights.update."""
        if self._clipping is not None:
            self._clipping.clip()
        factor = 1.0
        if not synchronous:
            factor = corrections.learning_rate_factor(self._tau, self.asynchronous, self._annealing)
            self.asynchronous += 1
        self._weights.update(lambda: self._step(factor), keep, as_previous)
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            torch.clear_autocast_cache()  # it has casts of the weights before

    def _step(self, factor: float) -> None:
        if self.optimizer is None:
            return
        if self._correction is not None:
            self._correction.before_update()
        with _rates_times(self.optimizer, factor):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self._correction is not None:
            self._correction.after_update()


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
