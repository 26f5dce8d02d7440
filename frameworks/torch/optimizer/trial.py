"""Trial step: the change of parameters by an optimizer with gradients of this rank alone.

For gradients in flight. "Eager Updates For Overlapped Communication and Computation in DiLoCo", arXiv 2502.12996,
applies the rank's own contribution at once and the others' late. Here the own contribution changes the weights of the
next pass, until the mean arrives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor


class Trial:
    """The last gradients of this rank, and steps with them that leave the optimizer unchanged.

    Public attributes: scale, the factor of the loss.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.scale = 1.0
        self._optimizer = optimizer
        self._kept: set[Tensor] = set()  # parameters with a gradient in `_gradients`
        self._gradients: dict[Tensor, Tensor] = {}
        self._copies: dict[Tensor, dict[str, Tensor]] = {}  # working memory of a trial step, reused
        self._clips: list[Callable[[], object]] = []

    def keep(self, parameter: Tensor, factor: float) -> None:
        """Keep a copy of `parameter.grad` times a factor, before it is exchanged."""
        grad = parameter.grad
        if grad is None:
            return
        self._kept.add(parameter)
        if grad.is_sparse:
            self._gradients[parameter] = grad.detach() * factor
            return
        copy = self._gradients.get(parameter)
        if copy is None or not _alike(copy, grad):
            copy = self._gradients[parameter] = torch.empty_like(grad)
        if factor == 0:  # a loss of nothing may have given NaN
            copy.zero_()
        else:
            torch.mul(grad.detach(), factor, out=copy)

    def clipped(self, clip: Callable[[], object]) -> None:
        """Record that the script clips the gradients of this update: `clip` does it for those in `parameter.grad`."""
        self._clips.append(clip)

    def changes(self) -> dict[int, Tensor]:
        """Return the changes by a step with the kept gradients, by parameter number in the groups; drop the gradients.

        The tensors are valid until the next call. Empty if a gradient is not finite: a scaled loss has overflowed.
        """
        kept, clips, scale = self._kept, self._clips, self.scale
        self._kept, self._clips, self.scale = set(), [], 1.0
        gradients = {one: self._gradients[one] for one in kept}
        if scale != 1.0:
            for one in gradients.values():
                one.div_(scale)
            if not all(bool(torch.isfinite(_values(one)).all()) for one in gradients.values()):
                return {}
        optimizer = self._optimizer
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        saved = {one: (one.grad, one.data) for one in parameters}
        states = {one: optimizer.state.get(one) for one in kept}
        groups = [dict(group) for group in optimizer.param_groups]
        try:
            for one in parameters:
                one.grad = gradients.get(one)
            for clip in clips:
                clip()
            with torch.no_grad():
                for one in kept:
                    copies = self._copies.setdefault(one, {})
                    state = states[one]
                    if state is not None:
                        optimizer.state[one] = {key: _copied(copies, key, held) for key, held in state.items()}
                    one.data = _copied(copies, "", one.data)
                # Without the surrounding hooks and counters, which are for updates.
                inspect.unwrap(type(optimizer).step)(optimizer)
                return {number: one.data.sub_(saved[one][1]) for number, one in enumerate(parameters) if one in kept}
        finally:
            for group, before in zip(optimizer.param_groups, groups, strict=True):
                group.update(before)  # some optimizers keep estimates there
            for one, (grad, data) in saved.items():
                one.grad, one.data = grad, data
            for one, state in states.items():
                if state is None:
                    optimizer.state.pop(one, None)
                else:
                    optimizer.state[one] = state


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype, one.device, one.layout) == (other.shape, other.dtype, other.device, other.layout)


def _copied(copies: dict[str, Tensor], key: str, held: Any) -> Any:
    """Copy an entry of the state into reused memory."""
    if not isinstance(held, Tensor):
        return deepcopy(held)
    copy = copies.get(key)
    if copy is None or not _alike(copy, held):
        copy = copies[key] = torch.empty_like(held)
    return copy.copy_(held)
