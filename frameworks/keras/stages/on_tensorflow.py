"""Passes of a Keras stage on TensorFlow: passes of paceline.tensorflow with layers of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.keras.backend import keras
from paceline.keras.stages.assembly import Assembly
from paceline.keras.stages.observed import Scores
from paceline.keras.stages.optimizer import apply
from paceline.keras.stages.stage import Stage
from paceline.stages.execution.activations import whole
from paceline.stages.execution.finish import Finish
from paceline.stages.execution.parts import Parts
from paceline.tensorflow.stages.passes import Flight, Gradients, Passes
from paceline.tensorflow.stages.tensors import StageTensors
from paceline.tensorflow.stages.weights import Correction, Weights


class _Layers:
    """Layers of Keras for paceline.tensorflow.stages.passes: variables take the values that the graph is given."""

    def __init__(self, stage: Stage, finish: Finish, scores: Scores) -> None:
        self._stage, self._finish, self._scores = stage, finish, scores

    def state(self) -> list[tf.Tensor]:
        """Return the current values of the variables that passes change."""
        return [one.value.read_value() for one in self._stage.state]

    def keep(self, state: Sequence[tf.Tensor]) -> None:
        """Store the values that a pass left."""
        for variable, value in zip(self._stage.state, state, strict=True):
            variable.assign(value)

    def __call__(
        self, flight: Flight, inputs: list[Any], weights: list[Any], state: list[Any], training: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """Compute outputs, new state and raw output without changing any variable."""
        given = [*zip(self._stage.trainable, weights, strict=True), *zip(self._stage.state, state, strict=True)]
        with keras.StatelessScope(state_mapping=given) as scope:
            output = self._stage(whole(flight.kind, inputs), training)
            flight.output_kind, outputs = self._finish(flight, output)
            left = [scope.get_current_value(variable) for variable in self._stage.state]
        return outputs, [tf.convert_to_tensor(one) for one in left], output

    def observe(self, target: Any, output: Any) -> None:
        """Add the outputs of a micro-batch to the metrics."""
        self._scores.observe(target, output)


class _Step:
    """A step of Keras' optimizer, and of T2's running mean."""

    def __init__(
        self, optimizer: Any, stage: Stage, weights: Weights, gradients: Gradients, correction: Correction | None
    ) -> None:
        self._optimizer, self._stage, self._weights = optimizer, stage, weights
        self._gradients, self._correction = gradients, correction

    def __call__(self, factor: float) -> None:
        """Update the weights, and consume the gradients."""
        gradients = self._gradients.take()
        before = None if self._correction is None else self._weights.newest.values
        apply(self._optimizer, gradients, self._stage.trainable, factor)
        if self._correction is not None and before is not None:
            self._correction.after_update(before)


def tensors_of(stage: Stage) -> StageTensors:
    """Return the tensor operations for this stage."""
    return StageTensors()


def assembled(by: Assembly) -> Parts:
    """Assemble the parts of a stage."""
    variables = [one.value for one in by.stage.trainable]
    weights, gradients = Weights(variables), Gradients(len(variables))
    correction = by.correction(Correction, variables)
    finish = by.finish(lambda output, target: by.loss(target, output))
    passes = Passes(_Layers(by.stage, finish, by.scores), weights, gradients, by.settings.recompute)
    step = _Step(by.optimizer, by.stage, weights, gradients, correction)
    return by.parts(weights, passes, gradients, correction, step)
