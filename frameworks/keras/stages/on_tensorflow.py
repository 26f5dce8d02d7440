"""What a stage computes with on TensorFlow: paceline.tensorflow's passes, with layers of Keras."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.keras.backend import keras
from paceline.keras.stages.observed import Scores
from paceline.keras.stages.optimizer import rate_times
from paceline.keras.stages.stage import Stage
from paceline.stages.execution.activations import whole
from paceline.stages.execution.finish import Finish
from paceline.stages.execution.parts import Parts, put_together
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.tensorflow.stages.passes import Flight, Gradients, Passes
from paceline.tensorflow.stages.tensors import StageTensors
from paceline.tensorflow.stages.weights import Correction, Weights


class _Layers:
    """See paceline.tensorflow.stages.passes.Layers: variables have the values that the graph is given."""

    def __init__(self, stage: Stage, finish: Finish, scores: Scores) -> None:
        self._stage, self._finish, self._scores = stage, finish, scores

    def state(self) -> list[tf.Tensor]:
        """See Layers.state."""
        return [one.value.read_value() for one in self._stage.state]

    def keep(self, state: Sequence[tf.Tensor]) -> None:
        """See Layers.keep."""
        for variable, value in zip(self._stage.state, state, strict=True):
            variable.assign(value)

    def __call__(
        self, flight: Flight, inputs: list[Any], weights: list[Any], state: list[Any], training: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """See Layers.__call__."""
        given = [*zip(self._stage.trainable, weights, strict=True), *zip(self._stage.state, state, strict=True)]
        with keras.StatelessScope(state_mapping=given) as scope:
            output = self._stage(whole(flight.kind, inputs), training)
            flight.output_kind, outputs = self._finish(flight, output)
            left = [scope.get_current_value(variable) for variable in self._stage.state]
        return outputs, [tf.convert_to_tensor(one) for one in left], output

    def observe(self, target: Any, output: Any) -> None:
        """See Layers.observe."""
        self._scores.observe(target, output)


class _Step:
    """A step of Keras' optimizer, and of T2's running mean."""

    def __init__(
        self, optimizer: Any, stage: Stage, weights: Weights, gradients: Gradients, correction: Correction | None
    ) -> None:
        self._optimizer, self._stage, self._weights = optimizer, stage, weights
        self._gradients, self._correction = gradients, correction

    def __call__(self, factor: float) -> None:
        """Use up the gradients."""
        gradients = self._gradients.take()
        before = None if self._correction is None else self._weights.newest.values
        if any(one is not None for one in gradients):
            with rate_times(self._optimizer, factor):
                self._optimizer.apply(gradients, self._stage.trainable)
        if self._correction is not None and before is not None:
            self._correction.after_update(before)


def tensors_of(stage: Stage) -> StageTensors:
    """Those of this stage."""
    return StageTensors()


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
    variables = [one.value for one in stage.trainable]
    weights, gradients = Weights(variables), Gradients(len(variables))
    correction = None
    if settings.discrepancy is not None and taus[0] > taus[1] and variables:
        correction = Correction(variables, settings.discrepancy, *taus)
    last = post.mail.rank == post.mail.size - 1
    finish = Finish(tensors, post.mail.rank, last, lambda output, target: loss(target, output))
    passes = Passes(_Layers(stage, finish, scores), weights, gradients, settings.recompute)
    step = _Step(optimizer, stage, weights, gradients, correction)
    return put_together(post, tensors, settings, weights, passes, gradients, counts, optimizer, correction, step)
