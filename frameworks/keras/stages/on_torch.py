"""What a stage computes with on PyTorch: paceline.torch's passes, with variables of Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.keras.stages.observed import Scores
from paceline.keras.stages.optimizer import rate_times
from paceline.keras.stages.stage import Stage
from paceline.stages.execution.finish import Finish
from paceline.stages.execution.parts import Parts, put_together
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.torch.stages.correction import Correction
from paceline.torch.stages.passes import Flight, Passes
from paceline.torch.stages.recompute import RecomputingPasses
from paceline.torch.stages.tensors import ParameterGradients, StageTensors
from paceline.torch.stages.weights import Weights


class _Module(nn.Module):
    """A stage as what PyTorch's passes call."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._call = stage

    def forward(self, value: Any) -> Any:
        """Its output."""
        return self._call(value, not self._call.evaluating)


class _Weights(Weights):
    """Aliases take the place of the parameters in Keras' variables."""

    def __init__(self, module: nn.Module, variables: Sequence[Any]) -> None:
        super().__init__(module, [one.value for one in variables])
        self._variables = list(variables)

    def own(self) -> None:
        """The variables have the parameters: an update follows."""
        self._install(self.parameters)

    def _install(self, tensors: Sequence[nn.Parameter]) -> None:
        for variable, tensor in zip(self._variables, tensors, strict=True):
            variable._value = tensor


class _RecomputingPasses(RecomputingPasses):
    """Sets variables aside that passes change, as the base class does with buffers and PyTorch's random numbers."""

    def __init__(
        self, module: nn.Module, weights: Weights, finish: Any, device: torch.device, state: Sequence[Any]
    ) -> None:
        super().__init__(module, weights, finish, device)
        self._state = list(state)
        self._before: dict[int, list[Tensor]] = {}

    def forward(self, flight: Flight) -> tuple[list[Tensor], list[bool]]:
        """See Passes.forward."""
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
        """Use up the gradients."""
        self._weights.own()
        gradients = [one.grad for one in self._weights.parameters]
        if self._correction is not None:
            self._correction.before_update()
        if any(one is not None for one in gradients):
            with torch.no_grad(), rate_times(self._optimizer, factor):
                self._optimizer.apply(gradients, self._stage.trainable)
        for parameter in self._weights.parameters:
            parameter.grad = None
        if self._correction is not None:
            self._correction.after_update()


def tensors_of(stage: Stage) -> StageTensors:
    """Those of this stage, on the device of its variables."""
    values = [one.value for one in stage.variables.values()]
    return StageTensors(values[0].device if values else torch.device("cpu"))


def assembled(
    post: Post,
    settings: Settings,
    stage: Stage,
    optimizer: Any,
    loss: Callable[[Any, Any], Any],
    tensors: StageTensors,
    counts: Sequence[int],
    taus: tuple[float, float],
    scores: Scores,
) -> Parts:
    """The parts of `stage`; `counts`: weights of each stage; `taus`: of this one."""
    module = _Module(stage)
    weights = _Weights(module, stage.trainable)
    correction = None
    if settings.discrepancy is not None and taus[0] > taus[1] and stage.trainable:
        correction = Correction(weights.parameters, settings.discrepancy, *taus)

    def observed(output: Tensor, target: Any) -> Any:
        # What is computed for the second time, for its backward pass, has a graph; the first time it has none.
        if not (settings.recompute and torch.is_grad_enabled()):
            scores.observe(target, output.detach())
        return loss(target, output)

    finish = Finish(tensors, post.mail.rank, post.mail.rank == post.mail.size - 1, observed)
    passes: Passes = (
        _RecomputingPasses(module, weights, finish, tensors.device, stage.state)
        if settings.recompute
        else Passes(module, weights, finish)
    )
    step = _Step(optimizer, stage, weights, correction)
    gradients = ParameterGradients(weights.parameters)
    return put_together(post, tensors, settings, weights, passes, gradients, counts, optimizer, correction, step)
