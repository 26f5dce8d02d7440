"""A micro-batch between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Flight:
    """What passes are given. `count`: after how many updates the forward pass is, and `version`, the weights of then.

    `inputs`: tensors of the kind `kind`, and which of them are `differentiable`. On the last stage `target` is the
    micro-batch's, or None where outputs are asked for, and `share` what its loss counts in the mini-batch's.
    `output_kind`: of what the stage made.
    """

    count: int
    version: Any
    kind: str
    inputs: list[Any]
    differentiable: Sequence[bool]
    target: Any
    share: float
    output_kind: str = ""
