"""T2 of PipeMare: weights for backward passes, corrected for how far they have moved since the forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.stages import corrections

# Of types with few digits a running mean would lose the small changes that it is made of.
_KEPT_AS = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


class Correction:
    """delta = gamma * delta + (1 - gamma) * (change by the last update), for each weight that is trained.

    `weight`: tau_forward - tau_backward, by which delta is multiplied where weights are corrected.
    """

    def __init__(
        self, parameters: Sequence[Tensor], correction: float, tau_forward: float, tau_backward: float
    ) -> None:
        self.weight = corrections.correction_weight(tau_forward, tau_backward)
        self._gamma = corrections.delta_decay(correction, tau_forward, tau_backward)
        self._parameters = list(parameters)
        self.deltas = [memory_like(one) for one in self._parameters]

    def corrected(self, number: int) -> Tensor:
        """The newest weights of one parameter, less the change that is expected since the forward pass."""
        parameter = self._parameters[number].detach()
        return torch.sub(parameter, self.deltas[number].to(parameter.dtype), alpha=self.weight)

    def load(self, saved: Sequence[Tensor | None]) -> None:
        """Go on from deltas that were saved; None stands for nothing, which is 0."""
        load(self.deltas, saved)

    # delta - w before the update and + w after it, which needs no copy of the weights.
    @torch.no_grad()
    def before_update(self) -> None:
        """An update follows."""
        for delta, parameter in zip(self.deltas, self._parameters, strict=True):
            delta.mul_(self._gamma).sub_(parameter.to(delta.dtype), alpha=1 - self._gamma)

    @torch.no_grad()
    def after_update(self) -> None:
        """The parameters have changed."""
        for delta, parameter in zip(self.deltas, self._parameters, strict=True):
            delta.add_(parameter.to(delta.dtype), alpha=1 - self._gamma)


def memory_like(parameter: Tensor) -> Tensor:
    """Zeros for a running mean of what `parameter` changes by."""
    return torch.zeros_like(parameter, dtype=_KEPT_AS.get(parameter.dtype, parameter.dtype), requires_grad=False)


@torch.no_grad()
def load(memory: Sequence[Tensor], saved: Sequence[Tensor | None]) -> None:
    """Go on from running means that were `saved`; None stands for nothing, which is 0."""
    for own, found in zip(memory, saved, strict=True):
        own.zero_() if found is None else own.copy_(found)
