"""Forward and backward passes of one stage, at the weights that are asked for."""

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
    """What computes flights of one form, the kind of what it hands on, and the structure of the last stage's output."""

    split: Split
    output_kind: str
    output_like: Any


@dataclass
class Flight(flight.Flight):
    """`traced`: what computes it; `saved`: what its backward pass needs of the forward pass; `others`: what that was
    given beside inputs and weights, kept for computing again.
    """

    traced: Traced | None = None
    saved: list[tf.Tensor] = field(default_factory=list)
    others: list[tf.Tensor] = field(default_factory=list)


class Layers(Protocol):
    """The layers of a stage as a function. Its state: what they change beside their weights, in order."""

    def state(self) -> list[tf.Tensor]:
        """Its values at the moment."""
        ...

    def keep(self, state: Sequence[tf.Tensor]) -> None:
        """What it has become."""
        ...

    def __call__(
        self, flight: Flight, inputs: list[Any], weights: list[Any], state: list[Any], training: bool
    ) -> tuple[list[Any], list[Any], Any]:
        """In a graph: what travels on, or the loss; the state that it leaves; and on the last stage the output. Sets
        the flight's `output_kind`.
        """
        ...

    def observe(self, target: Any, output: Any) -> None:
        """What the last stage made of a micro-batch."""
        ...


class Gradients:
    """The gradients of a mini-batch so far; see paceline.stages.execution.clipping.Gradients."""

    def __init__(self, count: int) -> None:
        self.values: list[tf.Tensor | None] = [None] * count

    def add(self, found: Sequence[tf.Tensor | None]) -> None:
        """Those of a micro-batch."""
        for number, one in enumerate(found):
            if one is not None:
                before = self.values[number]
                self.values[number] = one if before is None else before + one

    def take(self) -> list[tf.Tensor | None]:
        """All of them, and begin anew."""
        found, self.values = self.values, [None] * len(self.values)
        return found

    def divide(self, by: int) -> None:
        """See Gradients.divide."""
        self.values = [None if one is None else one / tf.constant(by, one.dtype) for one in self.values]

    def norms(self) -> list[float | None]:
        """See Gradients.norms."""
        return [None if one is None else float(tf.norm(one)) for one in self.values]

    def clip(self, norms: Sequence[float], max_norm: float) -> float:
        """See Gradients.clip."""
        total = float(np.linalg.norm(norms))
        factor = min(max_norm / (total + 1e-6), 1.0)
        self.values = [None if one is None else one * tf.constant(factor, one.dtype) for one in self.values]
        return total


class Passes:
    """Computes with the layers of a stage, each pass a graph of its own; see split.py.

    `recompute`: keep the inputs of a flight alone, and compute again, at the weights of the backward pass, with the
    state that the layers had.
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
        """See Passes.forward."""
        outputs = self._outputs(flight, training=True)
        assert flight.traced is not None
        if self._recompute:
            flight.saved = []
        else:
            flight.others = []
        return outputs, flight.traced.split.wanted

    def evaluate(self, flight: Flight) -> list[tf.Tensor]:
        """See Passes.evaluate."""
        return self._outputs(flight, training=False)

    def backward(self, flight: Flight, gradients: Sequence[tf.Tensor] | None) -> list[tf.Tensor]:
        """See Passes.backward."""
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
        # The function outlives the flight: nothing of it but its form may be in there.
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
