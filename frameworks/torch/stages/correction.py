"""T2 of PipeMare: weights for backward passes, corrected for their change since the forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.stages import corrections

# Type of a running mean: low-precision types would lose its small changes.
_KEPT_AS = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


class Correction:
    """Running mean of weight changes: delta = gamma * delta + (1 - gamma) * (change by the last update).

    `weight`: tau_forward - tau_backward, the factor of delta in corrected weights.
    """

    def __init__(
        self, parameters: Sequence[Tensor], correction: float, tau_forward: float, tau_backward: float
    ) -> None:
        self.weight = corrections.correction_weight(tau_forward, tau_backward)
        self._gamma = corrections.delta_decay(correction, tau_forward, tau_backward)
        self._parameters = list(parameters)
        self.deltas = [memory_like(one) for one in self._parameters]

    def corrected(self, number: int) -> Tensor:
        """Return the newest weights of one parameter, minus the expected change since the forward pass."""
        parameter = self._parameters[number].detach()
        return torch.sub(parameter, self.deltas[number].to(parameter.dtype), alpha=self.weight)

    def load(self, saved: Sequence[Tensor | None]) -> None:
        """Load saved deltas; None stands for zeros."""
        load(self.deltas, saved)

    # Subtract w before the update and add it after: this needs no copy of the weights.
    @torch.no_grad()
    def before_update(self) -> None:
        """Called before an update."""
        for delta, parameter in zip(self.deltas, self._parameters, strict=True):
            delta.mul_(self._gamma).sub_(parameter.to(delta.dtype), alpha=1 - self._gamma)

    @torch.no_grad()
    def after_update(self) -> None:
        """Called after an update."""
        for delta, parameter in zip(self.deltas, self._parameters, strict=True):
            delta.add_(parameter.to(delta.dtype), alpha=1 - self._gamma)


def memory_like(parameter: Tensor) -> Tensor:
    """Zeros for a running mean of the changes of `parameter`."""
    return torch.zeros_like(parameter, dtype=_KEPT_AS.get(parameter.dtype, parameter.dtype), requires_grad=False)


@torch.no_grad()
def load(memory: Sequence[Tensor], saved: Sequence[Tensor | None]) -> None:
    """Load saved running means; None stands for zeros."""
    for own, found in zip(memory, saved, strict=True):
        own.zero_() if found is None else own.copy_(found)
