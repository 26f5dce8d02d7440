"""Optimizers of one process that do what several ranks do under an exchange: the reference of whole trainers."""

from __future__ import annotations

from typing import Any

import torch


class DelayedAdamW(torch.optim.AdamW):
    """AdamW with the gradients of the step before, as Pipe-SGD with K = 2: the first step changes nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held: list[torch.Tensor] = []

    def step(self, closure: Any = None) -> Any:
        """Keep the gradients of the closure's pass, and make the update of those that were kept."""
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        new = [one.grad.clone() for group in self.param_groups for one in group["params"]]
        self._held, held = new, self._held
        if held:
            self._apply(held)
        return loss

    def finish(self) -> None:
        """Make the last update, as drain()."""
        self._apply(self._held)
        self._held = []

    def _apply(self, gradients: list[torch.Tensor]) -> None:
        together = (one for group in self.param_groups for one in group["params"])
        for one, gradient in zip(together, gradients, strict=True):
            one.grad = gradient
        super().step()
