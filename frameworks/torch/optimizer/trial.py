"""A trial step: by how much an optimizer would change parameters with gradients of this rank alone.

For gradients in flight: "Eager Updates For Overlapped Communication and Computation in DiLoCo", arXiv 2502.12996, takes
the rank's own contribution at once and that of the others late. Here the own one moves the weights that the next pass
uses, until the mean arrives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


class Trial:
    """The last gradients of this rank, and steps with them that leave the optimizer as it was.

    Public attributes: scale, the factor that the loss was multiplied by.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.scale = 1.0
        self._optimizer = optimizer
        self._gradients: dict[Tensor, Tensor] = {}
        self._clips: list[Callable[[], object]] = []

    def keep(self, parameter: Tensor, factor: float) -> None:
        """Keep a copy of `parameter.grad` times a factor, before it is exchanged."""
        if parameter.grad is not None:
            zeros = factor == 0 and not parameter.grad.is_sparse
            self._gradients[parameter] = torch.zeros_like(parameter.grad) if zeros else parameter.grad.detach() * factor

    def clipped(self, clip: Callable[[], object]) -> None:
        """The script clips the gradients of this update: `clip` does so with those in `parameter.grad`."""
        self._clips.append(clip)

    def changes(self) -> dict[int, Tensor]:
        """Return what a step with the gradients that were kept would change, by number in the groups; drop them.

        Nothing where they are not finite: a scaled loss has overflowed.
        """
        gradients, clips, scale = self._gradients, self._clips, self.scale
        self._gradients, self._clips, self.scale = {}, [], 1.0
        optimizer = self._optimizer
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        if scale != 1.0:
            for one in gradients.values():
                one.div_(scale)
            if not all(bool(torch.isfinite(_values(one)).all()) for one in gradients.values()):
                return {}
        before = {one: one.detach().clone() for one in parameters if one in gradients}
        handed = {one: one.grad for one in parameters}
        state = {one: _copied(optimizer.state.get(one)) for one in before}
        try:
            for one in parameters:
                one.grad = gradients.get(one)
            for clip in clips:
                clip()
            with torch.no_grad():
                # Without the hooks and counters around it, which are for updates.
                inspect.unwrap(type(optimizer).step)(optimizer)
                return {number: one.detach() - before[one] for number, one in enumerate(parameters) if one in before}
        finally:
            with torch.no_grad():
                for one, grad in handed.items():
                    one.grad = grad
                for one, value in before.items():
                    one.copy_(value)
                    _restore(optimizer, one, state[one])


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _copied(state: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]] | None:
    """Return each entry and its values; None for a parameter without an update so far."""
    if not state:
        return None
    return {key: (one, one.clone() if isinstance(one, Tensor) else one) for key, one in state.items()}


def _restore(optimizer: torch.optim.Optimizer, parameter: Tensor, kept: dict[str, tuple[Any, Any]] | None) -> None:
    if kept is None:
        optimizer.state.pop(parameter, None)
        return
    state = optimizer.state[parameter]
    for key in [key for key in state if key not in kept]:
        del state[key]
    for key, (one, values) in kept.items():
        if isinstance(one, Tensor):
            one.copy_(values)
        state[key] = one
