"""Forward and backward passes of one stage, at the requested weights."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from paceline.stages.execution import flight
from paceline.tensorflow.stages.split import Made, Split
from paceline.tensorflow.stages.weights import Correction, Version, Weights


@dataclass(frozen=True)
class Traced:
    """Traced passes for flights of one form, the kind of their output, and the structure of the last stage's output."""

    split: Split
    output_kind: str
    output_like: Any


@dataclass
class Flight(flight.Flight):
    """A micro-batch on TensorFlow.

    `traced`: its passes. `saved`: tensors that its backward pass needs from the forward pass. `others`: inputs of the
    forward pass besides activations and weights, kept for recomputing.
    """

    traced: Traced | None = None
    saved: list[tf.Tensor] = field(default_factory=list)
    others: list[tf.Tensor] = field(default_factory=list)


class Layers(Protocol):
    """The layers of a stage as a function. Their state: tensors that they change besides their weights, in order."""

    def state(self) -> list[tf.Tensor]:
        """Return the current values of the state."""
        ...

    def keep(self, state: Sequence[tf.Tensor]) -> None:
        """Store new values of the state."""
        ...

    def __call__(
        self, flight: Flight, inputs: list[Any], weights: list[Any], state: list[Any], training: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """Compute outputs (or the loss), new state, and on the last stage the raw output, in a graph.

        Sets the flight's `output_kind`.
        """
        ...

    def observe(self, target: Any, output: Any) -> None:
        """Receive the last stage's output for a micro-batch, for metrics."""
        ...


class Gradients:
    """Gradients summed over a mini-batch so far; implements paceline.stages.execution.clipping.Gradients."""

    def __init__(self, count: int) -> None:
        self.values: list[tf.Tensor | None] = [None] * count

    def add(self, found: Sequence[tf.Tensor | None]) -> None:
        """Add the gradients of a micro-batch."""
        for number, one in enumerate(found):
            if one is not None:
                before = self.values[number]
                self.values[number] = one if before is None else before + one

    def take(self) -> list[tf.Tensor | None]:
        """Return all gradients and start again from none."""
        found, self.values = self.values, [None] * len(self.values)
        return found

    def divide(self, by: int) -> None:
        """Divide all gradients by a number."""
        self.values = [None if one is None else one / tf.constant(by, one.dtype) for one in self.values]

    def norms(self) -> list[float | None]:
        """Return the norm of each gradient; None for a missing one."""
        return [None if one is None else float(tf.norm(one)) for one in self.values]

    def clip(self, norms: Sequence[float], max_norm: float) -> float:
        """Clip by `norms`, those of all gradients of the model, to `max_norm`. Returns the total norm before."""
        total = float(np.linalg.norm(norms))
        factor = min(max_norm / (total + 1e-6), 1.0)
        self.values = [None if one is None else one * tf.constant(factor, one.dtype) for one in self.values]
        return total


class Passes:
    """Computes with the layers of a stage, each pass a graph of its own; see split.py.

    `recompute`: keep only the inputs of a flight, and compute again at the weights of the backward pass, with the
    layers' state at the forward pass.
    """

    flight = Flight

    def __init__(self, layers: Layers, weights: Weights, gradients: Gradients, recompute: bool) -> None:
        self.stashed = False
        self.correction: Correction | None = None
        self._layers, self._weights, self._gradients = layers, weights, gradients
        self._recompute = recompute
        self._traced: dict[Any, Traced] = {}

    def lent(self) -> contextlib.AbstractContextManager[None]:
        """Return an empty context: passes change no state of the process."""
        return contextlib.nullcontext()

    def forward(self, flight: Flight) -> tuple[list[tf.Tensor], list[bool]]:
        """Return the outputs, and which of them will get gradients."""
        outputs = self._outputs(flight, training=True)
        assert flight.traced is not None
        if self._recompute:
            flight.saved = []
        else:
            flight.others = []
        return outputs, flight.traced.split.wanted

    def evaluate(self, flight: Flight) -> list[tf.Tensor]:
        """Return the outputs of a micro-batch without a backward pass."""
        return self._outputs(flight, training=False)

    def backward(self, flight: Flight, gradients: Sequence[tf.Tensor] | None) -> list[tf.Tensor]:
        """Add to the gradients of the weights; return those of the differentiable inputs."""
        assert flight.traced is not None
        split = flight.traced.split
        version: Version = flight.version if self.stashed else self._weights.newest
        values = version.values if self.correction is None else self.correction.corrected(version.values)
        if self._recompute:
            _, _, flight.saved = split.forward(flight.inputs, values, flight.others)
        inputs, weights = split.backward(flight.saved, values, gradients or [])
        self._gradients.add(weights)
        wanting = [one for one, wanted in zip(flight.inputs, flight.differentiable, strict=True) if wanted]
        return [tf.zeros_like(one) if found is None else found for one, found in zip(wanting, inputs, strict=True)]

    def _outputs(self, flight: Flight, training: bool) -> list[tf.Tensor]:
        targets = tf.nest.flatten(flight.target) if flight.target is not None else []
        state = self._layers.state()
        flight.others = [*state, *targets, tf.constant(flight.share, tf.float64)]
        version: Version = flight.version
        flight.traced = traced = self._traced_for(flight, version.values, len(state), training)
        flight.output_kind = traced.output_kind
        outputs, others, flight.saved = traced.split.forward(flight.inputs, version.values, flight.others)
        if training:
            self._layers.keep(others[: len(state)])
        if flight.target is not None:
            output = tf.nest.pack_sequence_as(traced.output_like, others[len(state) :])
            self._layers.observe(flight.target, output)
        return outputs

    def _traced_for(self, flight: Flight, weights: list[tf.Tensor], states: int, training: bool) -> Traced:
        targets = tf.nest.flatten(flight.target) if flight.target is not None else []
        key = (
            training,
            flight.kind,
            tuple(flight.differentiable),
            str(tf.nest.map_structure(lambda one: None, flight.target)),
            tuple((tuple(one.shape), one.dtype) for one in [*flight.inputs, *targets]),
        )
        if key not in self._traced:
            self._traced[key] = self._trace(flight, weights, states, training)
        return self._traced[key]

    def _trace(self, flight: Flight, weights: list[tf.Tensor], states: int, training: bool) -> Traced:
        # The function outlives the flight: it must hold nothing of it but its form.
        last = flight.target is not None
        like = tf.nest.map_structure(lambda one: 0, flight.target)
        model = Flight(0, None, flight.kind, [], flight.differentiable, None, 1.0)
        structure: list[Any] = []

        def function(inputs: list[Any], weights: list[Any], others: list[Any]) -> Made:
            model.target = tf.nest.pack_sequence_as(like, others[states:-1]) if last else None
            model.share = others[-1]
            outputs, state, output = self._layers(model, inputs, weights, others[:states], training)
            structure.append(output)
            return Made(outputs, [*state, *tf.nest.flatten(output)] if last else list(state))

        split = Split(
            function, flight.inputs, weights, flight.others, flight.differentiable, scalar=last, evaluated=not training
        )
        return Traced(split, model.output_kind, structure[0])
