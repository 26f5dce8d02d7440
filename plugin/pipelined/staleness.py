"""What PipeMare does about gradients that are applied tau updates after the weights they were computed at.

Yang et al., "PipeMare: Asynchronous Pipeline Parallel DNN Training", MLSys 2021; T1 and T2 are its names. Nothing here
knows a framework: rates, weights and trends may be numbers, arrays or tensors.

T1 makes the beginning gentle, when the learning rate is largest: the rate is divided by tau and grows to its own value.

T2 corrects weights for updates that lie between two uses of them, by the trend of the weights: a running average of
what an update changes. PipeMare moves weights back, to those that the forward pass of the same batch used. A pipelined
exchange moves them ahead, to those that their gradients will be applied to: its forward and backward pass use the
same weights, which are K - 1 updates older than those.
"""

from __future__ import annotations

from typing import Any


def rate_factor(tau: float, progress: Any) -> Any:
    """T1: by what to multiply the learning rate, tau^(progress - 1).

    `progress`: updates made / updates until the rate has its own value, from 0 to 1. A tau below 1 would raise the
    rate; it counts as 1.
    """
    return max(tau, 1.0) ** (progress - 1.0)


def retention(decay: float, updates: float) -> float:
    """T2: gamma = decay^(1 / updates), for weights that are corrected for so many updates (at least 1 counts).

    `decay` is what is left of an old change after them, 0 < decay < 1; exp(-2) = 0.135 is what theory suggests.
    """
    return float(decay ** (1.0 / max(updates, 1.0)))


def trend(before: Any, change: Any, gamma: float) -> Any:
    """T2: delta, what an update changes, after another one made `change`."""
    return gamma * before + (1.0 - gamma) * change


def moved(weights: Any, delta: Any, updates: Any) -> Any:
    """T2: what `weights` are expected to be so many updates later; earlier, if the number is negative."""
    return weights + updates * delta
