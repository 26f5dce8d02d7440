"""A Keras model as a list of layers, and the names that its variables have in the whole model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import UsageError
from paceline.keras.backend import keras

_REMEDY = "Use a keras.Sequential, or a functional model in which each layer has the output of the one before."


@dataclass(frozen=True)
class Layer:
    """One layer of a model, the unit at which a pipeline cuts.

    `number`: position in the whole model. `operation`: the Keras operation. `arguments`: the arguments that a
    functional model was built with; its input tensor among them is `into`.
    """

    number: int
    operation: Any
    arguments: Any = None
    into: Any = None

    @property
    def name(self) -> str:
        """Name of the layer."""
        return str(self.operation.name)

    @property
    def cost(self) -> int:
        """Number of elements of its trained weights."""
        return sum(math.prod(one.shape) for one in self.trainable)

    @property
    def trainable(self) -> list[Any]:
        """Variables that an optimizer changes."""
        return list(getattr(self.operation, "trainable_variables", ()))

    @property
    def weights(self) -> list[Any]:
        """Variables that belong to the model's weights."""
        return list(getattr(self.operation, "weights", ()))

    @property
    def variables(self) -> list[Any]:
        """All variables, including the states of random number generators."""
        return list(getattr(self.operation, "variables", ()))

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield all variables with their names in the whole model: the layer's number and the layer's part of the path.

        Keras counts the layers of a process in their names. Numbers are the same wherever a model is built.
        """
        seen: dict[str, int] = {}
        for variable in self.variables:
            parts = variable.path.split("/")
            own = parts[parts.index(self.name) + 1 :] if self.name in parts[:-1] else parts[-1:]
            name = ".".join([str(self.number), *own])
            count = seen[name] = seen.get(name, 0) + 1
            yield name if count == 1 else f"{name}.{count}", variable

    def __call__(self, value: Any, training: bool) -> Any:
        """Return the layer's output."""
        arguments: dict[str, Any] = {}
        if getattr(self.operation, "_call_has_training_arg", False):
            arguments["training"] = training
        if self.arguments is None:
            return self.operation(value, **arguments)
        args, given = self.arguments.fill_in({id(self.into): value})
        return self.operation(*args, **{**given, **arguments})


def layers_of(model: Any) -> list[Layer]:
    """Return the layers of a keras.Sequential, or of a functional model that is a chain.

    Nested Sequential models are flattened. Raises UsageError for other models and for models that are not built.
    """
    if not isinstance(model, keras.Model):
        raise UsageError(f"A pipeline cannot cut a {type(model).__name__}: expected a Keras model.", _REMEDY)
    if not model.built:
        raise UsageError(
            f"The model {model.name!r} has no variables yet.", "Build it first: begin with keras.Input(shape)."
        )
    found = list(_apart(model))
    if not found:
        raise UsageError(f"The model {model.name!r} has no layers.", "Give at least one layer per rank.")
    return [Layer(number, operation, arguments, into) for number, (operation, arguments, into) in enumerate(found)]


def _apart(model: Any) -> Iterator[tuple[Any, Any, Any]]:
    if isinstance(model, keras.Sequential):
        for layer in model.layers:
            yield from _apart(layer) if isinstance(layer, keras.Sequential) else [(layer, None, None)]
    elif hasattr(model, "_nodes_by_depth") and hasattr(model, "inputs"):
        yield from _chain(model)
    else:
        raise UsageError(f"A pipeline cannot cut {model.name!r}, a model with a call() of its own.", _REMEDY)


def _chain(model: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the calls of a functional model in order: operation, arguments, input tensor."""
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise UsageError(
            f"The model {model.name!r} has {len(model.inputs)} inputs and {len(model.outputs)} outputs: expected one.",
            _REMEDY,
        )
    value = model.inputs[0]
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if node.is_input:
                continue
            if [id(one) for one in node.input_tensors] != [id(value)] or len(node.outputs) != 1:
                taken = ", ".join(one.name for one in node.input_tensors)
                raise UsageError(
                    f"The model {model.name!r} is not a chain: {node.operation.name!r} takes {taken}, where the output "
                    "of the layer before was expected alone.",
                    _REMEDY,
                )
            if isinstance(node.operation, keras.Sequential):
                yield from _apart(node.operation)
            else:
                yield node.operation, node.arguments, value
            value = node.outputs[0]
    if value is not model.outputs[0]:
        raise UsageError(f"The model {model.name!r} is not a chain: its output is not that of its last layer.", _REMEDY)


def refuse_unfit(layers: Sequence[Layer]) -> None:
    """Raise UsageError for layers that a pipeline cannot train.

    Regularization losses belong to the whole model, and no other stage knows them. float16 needs loss scaling.
    """
    for layer in layers:
        operation = layer.operation
        inner = list(operation._flatten_layers()) if hasattr(operation, "_flatten_layers") else []
        regularized = any(getattr(one, "regularizer", None) is not None for one in layer.trainable)
        if regularized or any(getattr(one, "activity_regularizer", None) is not None for one in inner):
            raise UsageError(
                f"The layer {layer.name!r} has a regularizer, whose loss belongs to the whole model.",
                "Use the optimizer's weight_decay, or leave it out.",
            )
        if any(one.compute_dtype == "float16" for one in inner):
            raise UsageError(
                f"The layer {layer.name!r} computes in float16, which needs its loss scaled.",
                "Use the policy mixed_bfloat16, or float32.",
            )


def free(layers: Sequence[Layer]) -> None:
    """Free the memory of layers that belong to other stages; shapes remain known, computing raises UsageError."""
    for variable in itertools.chain.from_iterable(layer.variables for layer in layers):
        if keras.backend.backend() == "torch":  # layers have their own lists of the same parameters
            variable._value.data = variable._value.data.new_empty(0)
        variable._value = None
        variable._initializer = _gone


def _gone(*_: Any, **__: Any) -> Any:
    raise UsageError(
        "A variable of a layer that another stage keeps has no value here.",
        "Take it from pipeline.consolidate(), on rank 0.",
    )
