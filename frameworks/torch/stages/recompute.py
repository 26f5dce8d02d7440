"""Passes that keep no activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from paceline.torch.errors import UsageError
from paceline.torch.stages.passes import Finished, Flight, Passes
from paceline.torch.stages.undisturbed import buffers_aside, random_state, set_random_state
from paceline.torch.stages.weights import Weights


class RecomputingPasses(Passes):
    """Keeps only a micro-batch's inputs, and computes again before the backward pass.

    It recomputes at the weights of the backward pass, corrected or not, with the random numbers of the first time, and
    without a second effect on buffers. Corrected weights exist for the whole stage during that time.
    """

    def __init__(
        self,
        module: nn.Module,
        weights: Weights,
        finish: Finished,
        device: torch.device,
        numbers: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(module, weights, finish, numbers)
        self._device = device
        # States of the random number generators before the forward pass, by flight.
        self._random: dict[int, list[Tensor]] = {}
        # True if layers change their inputs in place, so that these must be copied; unknown at first.
        self._changes_inputs = True

    def forward(self, flight: Flight) -> tuple[list[Tensor], list[bool]]:
        """Return the outputs without a graph; all floating-point outputs will get gradients."""
        self._random[id(flight)] = random_state(self._device)
        kept = [one.clone() for one in flight.inputs] if self._changes_inputs else None
        versions = [one._version for one in flight.inputs]
        with torch.no_grad():
            outputs = self._outputs(flight, flight.inputs)
            changed = versions != [one._version for one in flight.inputs]
            if changed and kept is None:
                raise UsageError(
                    "A layer changed its input in place, and did not do so for the first micro-batch: it cannot be "
                    "recomputed.",
                    "Let the first layer of a stage always work in place or never, or leave recompute= out.",
                )
            if changed and kept is not None:
                inputs = {one.untyped_storage().data_ptr() for one in flight.inputs}
                outputs = [one.clone() if one.untyped_storage().data_ptr() in inputs else one for one in outputs]
                # Into the same memory: sums may depend on the addresses of their terms.
                for one, before in zip(flight.inputs, kept, strict=True):
                    one.copy_(before)
        self._changes_inputs = changed
        return outputs, [_can_have_gradient(one) for one in outputs]

    def _backward(self, flight: Flight, gradients: Sequence[Tensor] | None) -> None:
        if self.correction is not None:
            flight.version = self._weights.corrected(self.correction.corrected)
        elif not self.stashed:
            flight.version = self._weights.newest
        now = random_state(self._device)
        set_random_state(self._random.pop(id(flight)), self._device)
        with buffers_aside(self._module):
            outputs = self._with_graph(flight)
        set_random_state(now, self._device)
        flight.roots = [
            get_gradient_edge(one) if one.requires_grad else None for one in outputs if _can_have_gradient(one)
        ]
        super()._backward(flight, gradients)


def _can_have_gradient(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
