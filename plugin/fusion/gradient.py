"""A gradient as input of a policy, and the checks of every plan's input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import UserError


@dataclass(frozen=True)
class Gradient:
    """A tensor that is reduced in every step.

    Attributes:
        name: name of the operation.
        bytes: size in bytes.
        ready_s: time from the step's first gradient until all ranks have this one, in seconds.
        dtype: name of the data type.
        type: number of the data type and process set; only gradients of equal `type` can share a message.
    """

    name: str
    bytes: int
    ready_s: float
    dtype: str = "float32"
    type: int = 0


def check(gradients: Sequence[Gradient]) -> None:
    """Raise UserError, naming the tensor, for a duplicate name, a size below 0, or an invalid time."""
    remedy = "Measure again: sizes are whole bytes and readiness is seconds since the step's first gradient."
    if not gradients:
        raise UserError("There is no gradient to plan for.", "Plan for a model that reduces at least one tensor.")
    seen: set[str] = set()
    for gradient in gradients:
        if gradient.name in seen:
            raise UserError(f"The tensor {gradient.name} is given twice.", "Give every tensor a name of its own.")
        seen.add(gradient.name)
        if gradient.bytes < 0:
            raise UserError(f"The tensor {gradient.name} has {gradient.bytes} bytes.", remedy)
        if not math.isfinite(gradient.ready_s) or gradient.ready_s < 0:
            raise UserError(f"The tensor {gradient.name} is ready at {gradient.ready_s} s.", remedy)


def in_order(gradients: Sequence[Gradient], indices: Sequence[int] | range) -> list[int]:
    """Return `indices` in order of readiness; gradients that are ready together keep their order."""
    return sorted(indices, key=lambda index: (gradients[index].ready_s, index))
