"""A net of which each rank may use other parts, and its wrapped optimizer."""

from __future__ import annotations

from typing import Any

import torch


def wrapped(model: Any, lr: float = 1.0, **options: Any) -> Any:
    """Return a distributed SGD for `model`; `options` are arguments of DistributedOptimizer."""
    import paceline.torch as hvd

    hvd.init()
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), model.named_parameters(), **options)


class Branches(torch.nn.Module):
    """A net of which each rank may use other parts; gradients are whole numbers."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(3)))

    def forward(self, **factors: float) -> Any:
        """The sum of the elements of these parameters, times their factors."""
        return sum((getattr(self, name) * factor).sum() for name, factor in factors.items())
