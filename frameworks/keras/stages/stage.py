"""The layers of one stage, called in turn, and their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.keras.backend import keras
from paceline.keras.stages.layers import Layer


class Stage:
    """The layers of one stage. `names`: of the trained variables, in the order of `trainable`, each once.

    `state`: variables that passes change: moving statistics, random number generators. `evaluating`: passes run without
    training, for callers that cannot pass an argument.
    """

    def __init__(self, layers: Sequence[Layer], last: bool) -> None:
        self.layers, self._last = tuple(layers), last
        self.evaluating = False
        named: dict[int, tuple[str, Any]] = {}
        for layer in layers:
            for name, variable in layer.named():
                named.setdefault(id(variable), (name, variable))
        trained = {id(one) for layer in layers for one in layer.trainable}
        self.variables = dict(named.values())
        # In the order of the whole model's weights, which leave out random number generators.
        self.weights = {named[id(one)][0]: one for layer in layers for one in layer.weights}
        self.names = [name for name, one in named.values() if id(one) in trained]
        self.trainable = [self.variables[name] for name in self.names]
        self.state = [one for _, one in named.values() if id(one) not in trained]

    def __call__(self, value: Any, training: bool) -> Any:
        """Return the output of the last layer. Raises UsageError for an output with a mask, which is not sent on."""
        for layer in self.layers:
            value = layer(value, training)
        if not self._last:
            for one in keras.tree.flatten(value):
                if getattr(one, "_keras_mask", None) is not None:
                    raise UsageError(
                        f"The layer {self.layers[-1].name!r} hands on a mask, which does not travel between stages.",
                        "Cut the model (stages=) where no masks pass.",
                    )
        return value

    def values_of(self, variables: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Copies of the values of variables, as arrays."""
        return {name: np.array(keras.ops.convert_to_numpy(one.value)) for name, one in variables.items()}

    def check(self, saved: Mapping[str, Any]) -> None:
        """Raise UsageError if the weights of a whole model lack some of this stage, or have another shape."""
        missing = [name for name in self.weights if name not in saved]
        if missing:
            raise UsageError(
                f"The saved state lacks {len(missing)} variables of this stage, {missing[0]} among them.",
                "Load the state of the whole model (pipeline.consolidate()), or this stage's own of the same cut.",
            )
        for name, one in self.weights.items():
            if tuple(np.shape(saved[name])) != tuple(one.shape):
                raise UsageError(
                    f"The saved {name} has the shape {np.shape(saved[name])}: expected {tuple(one.shape)}.",
                    "Load a state of the same model.",
                )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load this stage's part of a saved state; random number generators may be absent."""
        for name, one in self.variables.items():
            if name in saved:
                one.assign(saved[name])
