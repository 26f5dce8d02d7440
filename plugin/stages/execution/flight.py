"""A micro-batch between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Flight:
    """State of a micro-batch for its passes.

    Attributes:
        count: number of updates before the forward pass.
        version: the weights after that number of updates.
        kind: structure of the inputs.
        inputs: input tensors.
        differentiable: for each input, True if it needs a gradient.
        target: the micro-batch's target on the last stage; None if outputs are requested.
        share: weight of its loss in the mini-batch's loss.
        output_kind: structure of the outputs.
    """

    count: int
    version: Any
    kind: str
    inputs: list[Any]
    differentiable: Sequence[bool]
    target: Any
    share: float
    output_kind: str = ""
