"""Weights that a stage computes with: values that stay when the variables change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.stages import corrections
from paceline.stages.execution.versions import VersionedWeights


class Version:
    """Values of all variables of a stage, at one moment or the newest."""

    def __init__(self, values: Sequence[tf.Tensor]) -> None:
        self.values = list(values)


class Weights(VersionedWeights):
    """Trained variables of a stage. Passes take values; the newest version follows the updates."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._variables = list(variables)
        super().__init__(self._made())

    def refresh(self) -> None:
        """Read the variables again."""
        self._newest.values = self._made().values

    def _leave(self) -> None:
        """Nothing to do: TensorFlow copies a variable's value in use when the variable changes."""

    def update(self, apply: Callable[[], None], keep: bool, as_previous: bool) -> None:
        """Apply an update and read the variables again."""
        super().update(apply, keep, as_previous)
        self.refresh()

    def _made(self) -> Version:
        return Version([one.read_value() for one in self._variables])


class Correction:
    """T2 (see paceline.torch.stages.correction): delta is the running mean of weight changes by updates."""

    def __init__(
        self, variables: Sequence[tf.Variable], correction: float, tau_forward: float, tau_backward: float
    ) -> None:
        self.weight = corrections.correction_weight(tau_forward, tau_backward)
        self._gamma = corrections.delta_decay(correction, tau_forward, tau_backward)
        self._variables = list(variables)
        self.deltas = [tf.zeros(one.shape, _kept_as(one.dtype)) for one in self._variables]

    def corrected(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return `values`, the newest weights, minus the expected change since the forward pass."""
        return [one - self.weight * tf.cast(delta, one.dtype) for one, delta in zip(values, self.deltas, strict=True)]

    def after_update(self, before: Sequence[tf.Tensor]) -> None:
        """Update the running means; `before`: values of the variables before the update."""
        for number, (old, variable) in enumerate(zip(before, self._variables, strict=True)):
            delta = self.deltas[number]
            change = tf.cast(variable.read_value(), delta.dtype) - tf.cast(old, delta.dtype)
            self.deltas[number] = self._gamma * delta + (1 - self._gamma) * change

    def load(self, deltas: Sequence[Any]) -> None:
        """Load saved deltas; None stands for zeros."""
        self.deltas = [
            tf.zeros_like(own) if saved is None else tf.constant(saved, own.dtype)
            for own, saved in zip(self.deltas, deltas, strict=True)
        ]


def _kept_as(dtype: tf.DType) -> tf.DType:
    """Type of a running mean: low-precision types would lose its small changes."""
    return tf.float32 if dtype in (tf.bfloat16, tf.float16) else dtype
