"""Nesterov's momentum around an optimizer without momentum, graded by stage: against late gradients.

Ajanthan et al., "Nesterov Method for Asynchronous Pipeline Parallel Optimization", ICML 2025. With u, the change by the
optimizer alone, and gamma, the stage's momentum: v = gamma v + (1 - gamma) u, and the weights w change by v. The stage
computes at w + gamma v, which is what its parameters hold. Gradients delayed by some updates are less out of date there
than at w.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.stages import corrections
from paceline.torch.errors import UsageError
from paceline.torch.stages.correction import memory_like


class Nesterov:
    """`velocities`: v of each parameter. `momentum`: gamma, graded for this stage. Nothing happens unless `on`."""

    def __init__(self, parameters: Sequence[Tensor], momentum: float, stage: int, stages: int) -> None:
        self.momentum = corrections.graded_momentum(momentum, stage, stages)
        self.on = False
        self._parameters = list(parameters)
        self.velocities = [memory_like(one) for one in self._parameters]
        self._before: list[Tensor] = []

    @torch.no_grad()
    def before_update(self) -> None:
        """Called before the optimizer's step."""
        self._before = [one.clone() for one in self._parameters] if self.on else []

    @torch.no_grad()
    def after_update(self) -> None:
        """Change the parameters with momentum, after the optimizer's step."""
        if not self.on:
            return
        gamma = self.momentum
        for parameter, before, velocity in zip(self._parameters, self._before, self.velocities, strict=True):
            change = (parameter - before).to(velocity.dtype).mul_(1 - gamma)
            velocity.mul_(gamma).add_(change)
            parameter.copy_(change.add_(velocity, alpha=gamma).add_(before))
        self._before = []


def refuse_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Raise UsageError for an optimizer that has its own momentum."""
    for group in optimizer.param_groups:
        for name, own in (("momentum", group.get("momentum")), ("betas", (group.get("betas") or (0,))[0])):
            if own:
                raise UsageError(
                    f"nesterov= was given with {type(optimizer).__name__}({name}={group[name]!r}), "
                    "which has a momentum of its own.",
                    "Give it momentum=0, or betas=(0, ...): nesterov= brings the momentum.",
                )
