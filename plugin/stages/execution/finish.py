"""Conversion of the output of a stage's layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from paceline.errors import UsageError
from paceline.stages.execution.flight import Flight
from paceline.stages.execution.tensors import Tensors

Loss = Callable[[Any, Any], Any]


class Finish:
    """Turn the output into tensors to send and their kind, or on the last stage, given a target, into the loss."""

    def __init__(self, tensors: Tensors, stage: int, last: bool, loss: Loss) -> None:
        self._tensors, self._whose = tensors, f"What stage {stage} returned"
        self._last, self._loss = last, loss

    def __call__(self, flight: Flight, output: Any) -> tuple[str, list[Any]]:
        """Convert `output`; the loss is multiplied by its share.

        Raises UsageError for outputs that cannot be sent, and for a loss that is not one number.
        """
        if not self._last or flight.target is None:
            return self._tensors.members(output, self._whose)
        found = self._loss(output, flight.target)
        unfit = bool(self._tensors.unfit(found))
        if unfit or math.prod(found.shape) != 1:
            what = type(found).__name__ if unfit else f"a tensor of shape {tuple(found.shape)}"
            raise UsageError(f"loss returned {what}: expected one number.", "Return a mean, or a sum, over rows.")
        return "tensor", [self._tensors.times(found, flight.share)]
