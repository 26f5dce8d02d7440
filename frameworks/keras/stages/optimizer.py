"""Optimizer of a stage: its steps, and its state by the names of weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.keras.backend import keras
from paceline.keras3.optimizer import find


def found_in(asked: Any) -> Any:
    """Return the optimizer from an instance, a name or a function that returns one.

    Raises UsageError for anything else, for an optimizer that needs gradients of the whole model, and for a used one.
    """
    found = asked
    if callable(asked) and not isinstance(asked, (type, keras.optimizers.Optimizer)):
        found = asked()
    elif isinstance(asked, (str, dict)):
        try:
            found = keras.optimizers.get(asked)
        except ValueError as error:
            raise UsageError(f"optimizer={asked!r} is not known to Keras: {error}", "Give one of Keras.") from error
    if not isinstance(found, keras.optimizers.Optimizer) or isinstance(found, keras.optimizers.LossScaleOptimizer):
        raise UsageError(
            f"optimizer is a {type(found).__name__}: expected a Keras optimizer without loss scaling.",
            "Give keras.optimizers.SGD(...) or a function that returns it; policies mixed_bfloat16 and float32.",
        )
    if find(found) is not None:
        raise UsageError(
            "optimizer is one of hvd.DistributedOptimizer, which averages gradients of all ranks.",
            "Give the optimizer within: ranks of a pipeline have different weights.",
        )
    for name, instead in (("global_clipnorm", "hvd.Pipeline(max_norm=)"), ("gradient_accumulation_steps", "batches")):
        if getattr(found, name, None):
            raise UsageError(
                f"The optimizer has {name}={getattr(found, name)}, which would be a stage's own.", f"Use {instead}."
            )
    if found.built:
        raise UsageError(
            f"The optimizer {found.name!r} has been used for other variables.",
            "Give a new one.",
        )
    return found


@contextlib.contextmanager
def rate_times(optimizer: Any, factor: float) -> Iterator[None]:
    """Context of one step with `factor` times the learning rate; schedulers find their own rate afterwards."""
    if factor == 1:
        yield
        return
    before = optimizer._learning_rate
    rate = float(keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(optimizer.learning_rate)))
    # Bypass Keras' tracking of attributes: the original comes back. TensorFlow treats a Python number as float32.
    optimizer.__dict__["_learning_rate"] = np.float64(rate * factor)
    try:
        yield
    finally:
        optimizer.__dict__["_learning_rate"] = before


def apply(optimizer: Any, gradients: Sequence[Any], weights: Sequence[Any], factor: float) -> None:
    """Make a step with `factor` times the learning rate, if any of `weights` has a gradient."""
    if any(one is not None for one in gradients):
        with rate_times(optimizer, factor):
            optimizer.apply(gradients, weights)


def _slots(optimizer: Any, count: int) -> dict[str, list[Any]]:
    """Lists of the optimizer that hold a variable for each weight, by attribute."""
    return {
        attribute: list(value)
        for attribute, value in vars(optimizer).items()
        if attribute not in ("_trainable_variables", "_variables")
        and isinstance(value, (list, tuple))
        and len(value) == count
        and all(isinstance(one, keras.Variable) for one in value)
    }


def state_of(optimizer: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return {"shared": numbers by name, "slots": {weight: {attribute: array}}}; empty for a stage without weights."""
    if optimizer is None:
        return {"shared": {}, "slots": {}}
    slots = _slots(optimizer, len(names))
    in_slots = {id(one) for values in slots.values() for one in values}
    return {
        "shared": {one.name: _array(one) for one in optimizer.variables if id(one) not in in_slots},
        "slots": {
            name: {attribute: _array(values[number]) for attribute, values in slots.items()}
            for number, name in enumerate(names)
        },
    }


def check(optimizer: Any, names: Sequence[str], saved: Mapping[str, Any]) -> None:
    """Raise UsageError for a state that lacks something of this stage."""
    for name in names if optimizer is not None else ():
        for attribute in _slots(optimizer, len(names)):
            if attribute not in saved["slots"].get(name, {}):
                raise UsageError(
                    f"The saved state of the optimizer lacks {attribute} of {name}, a weight of this stage.",
                    "Load the state of the same kind of optimizer, of the whole model or of this stage's own.",
                )


def load(optimizer: Any, names: Sequence[str], saved: Mapping[str, Any]) -> None:
    """Load this stage's part of a saved state."""
    if optimizer is None:
        return
    slots = _slots(optimizer, len(names))
    in_slots = {id(one) for values in slots.values() for one in values}
    for one in optimizer.variables:
        if id(one) not in in_slots and one.name in saved["shared"]:
            one.assign(saved["shared"][one.name])
    for attribute, values in slots.items():
        for name, one in zip(names, values, strict=True):
            one.assign(saved["slots"][name][attribute])


def _array(variable: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(variable.value))
