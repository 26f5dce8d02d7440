"""Passes of a Keras stage on PyTorch: passes of paceline.torch with variables of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.keras.stages.assembly import Assembly
from paceline.keras.stages.optimizer import apply
from paceline.keras.stages.stage import Stage
from paceline.stages.execution.parts import Parts
from paceline.torch.stages.correction import Correction
from paceline.torch.stages.passes import Flight, Passes
from paceline.torch.stages.random_numbers import RandomNumbers
from paceline.torch.stages.recompute import RecomputingPasses
from paceline.torch.stages.tensors import ParameterGradients, StageTensors
from paceline.torch.stages.weights import Weights


class _Module(nn.Module):
    """The stage as a module for PyTorch's passes."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._call = stage

    def forward(self, value: Any) -> Any:
        """Return the stage's output."""
        return self._call(value, not self._call.evaluating)


class _Weights(Weights):
    """Weights whose aliases replace the parameters in Keras' variables."""

    def __init__(self, module: nn.Module, variables: Sequence[Any]) -> None:
        super().__init__(module, [one.value for one in variables])
        self._variables = list(variables)

    def own(self) -> None:
        """Restore the parameters in the variables before an update."""
        self._install(self.parameters)

    def _install(self, tensors: Sequence[nn.Parameter]) -> None:
        for variable, tensor in zip(self._variables, tensors, strict=True):
            variable._value = tensor


class _RecomputingPasses(RecomputingPasses):
    """Recompute with saved variables that passes change; the base class saves buffers and PyTorch's random numbers."""

    def __init__(
        self,
        module: nn.Module,
        weights: Weights,
        finish: Any,
        device: torch.device,
        numbers: RandomNumbers,
        state: Sequence[Any],
    ) -> None:
        super().__init__(module, weights, finish, device, numbers)
        self._state = list(state)
        self._before: dict[int, list[Tensor]] = {}

    def forward(self, flight: Flight) -> tuple[list[Tensor], list[bool]]:
        """Save the variables, then run the forward pass."""
        self._before[id(flight)] = self._values()
        return super().forward(flight)

    def _backward(self, flight: Flight, gradients: Sequence[Tensor] | None) -> None:
        now = self._values()
        self._put(self._before.pop(id(flight)))
        super()._backward(flight, gradients)
        self._put(now)

    def _values(self) -> list[Tensor]:
        return [one.value.detach().clone() for one in self._state]

    def _put(self, values: Sequence[Tensor]) -> None:
        for one, value in zip(self._state, values, strict=True):
            one.assign(value)


class _Step:
    """A step of Keras' optimizer; see paceline.torch.stages.step."""

    def __init__(self, optimizer: Any, stage: Stage, weights: _Weights, correction: Correction | None) -> None:
        self._optimizer, self._stage, self._weights, self._correction = optimizer, stage, weights, correction

    def __call__(self, factor: float) -> None:
        """Update the weights, and consume the gradients."""
        self._weights.own()
        gradients = [one.grad for one in self._weights.parameters]
        if self._correction is not None:
            self._correction.before_update()
        with torch.no_grad():
            apply(self._optimizer, gradients, self._stage.trainable, factor)
        for parameter in self._weights.parameters:
            parameter.grad = None
        if self._correction is not None:
            self._correction.after_update()


def tensors_of(stage: Stage) -> StageTensors:
    """Return the tensor operations for this stage, on the device of its variables."""
    return StageTensors(_device_of(stage))


def _device_of(stage: Stage) -> torch.device:
    values = [one.value for one in stage.variables.values()]
    return values[0].device if values else torch.device("cpu")


def assembled(by: Assembly) -> Parts:
    """Assemble the parts of a stage."""
    module = _Module(by.stage)
    weights = _Weights(module, by.stage.trainable)
    correction = by.correction(Correction, weights.parameters)

    def observed(output: Tensor, target: Any) -> Any:
        # With recompute the loss is computed twice. Only the second time, for the backward pass, has a graph.
        if not (by.settings.recompute and torch.is_grad_enabled()):
            by.scores.observe(target, output.detach())
        return by.loss(target, output)

    finish = by.finish(observed)
    device = _device_of(by.stage)
    numbers = RandomNumbers(by.post.communicator.rank, by.post.communicator.size, device)
    passes: Passes = (
        _RecomputingPasses(module, weights, finish, device, numbers, by.stage.state)
        if by.settings.recompute
        else Passes(module, weights, finish, numbers)
    )
    step = _Step(by.optimizer, by.stage, weights, correction)
    return by.parts(weights, passes, ParameterGradients(weights.parameters), correction, step)
