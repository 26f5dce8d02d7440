"""A gradient that no rank has stays None, and no message is needed to know it.

A rank without a gradient hands in -0.0, one with a gradient hands in something else in the first place. A sum is -0.0
only if all its terms are (IEEE 754), so the result is -0.0 there on all ranks if nobody had a gradient, and on none
otherwise. Under a pipelined exchange, with a codec, whose error feedback adds zeros, and where ranks have joined the
result is zeros.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def absent_like(parameter: Tensor) -> Tensor:
    """What is handed in for a parameter without a gradient."""
    return torch.full_like(parameter, -0.0)


def mark_present(gradient: Tensor) -> None:
    """Make sure that a gradient, contiguous and about to travel, is not taken for one that is absent."""
    gradient.view(-1)[:1].add_(0.0)


def is_absent(result: Tensor) -> bool:
    """Whether no rank had a gradient. Never for one on a GPU, which would have to be waited for."""
    if not result.is_cpu or not result.numel():
        return False
    return is_sign(result.view(-1)[0].item())


def is_sign(first: float) -> bool:
    """Whether the first value of a result says that no rank had a gradient."""
    return first == 0 and math.copysign(1.0, first) < 0
