"""PipeMare's compensation for gradients that are applied tau updates after the weights they were computed at.

Yang et al., "PipeMare: Asynchronous Pipeline Parallel DNN Training", MLSys 2021; T1 and T2 are the paper's names. The
module is independent of frameworks: rates, weights and trends may be numbers, arrays or tensors.

T1 limits the learning rate at the beginning, when it is largest: the rate is divided by tau and grows to its value.

T2 corrects weights for the updates between two uses of them, by the trend of the weights: a running average of the
change in an update. PipeMare moves weights back, to those that the forward pass of the same batch used. A pipelined
exchange moves them ahead, to those that their gradients will be applied to: its forward and backward pass use the same
weights, which are older than those by K - 1 updates.
"""

from __future__ import annotations

from typing import Any


def rate_factor(tau: float, progress: Any) -> Any:
    """T1: return the factor of the learning rate, tau^(progress - 1).

    `progress`: updates made / updates of annealing, from 0 to 1. A tau below 1 would raise the rate, and counts as 1.
    """
    return max(tau, 1.0) ** (progress - 1.0)


def retention(decay: float, updates: float) -> float:
    """T2: return gamma = decay^(1 / updates), for weights that are corrected for this many updates (at least 1 counts).

    `decay`, 0 < decay < 1, is the share of an old change left after them; theory suggests exp(-2) = 0.135.
    """
    return float(decay ** (1.0 / max(updates, 1.0)))


def trend(before: Any, change: Any, gamma: float) -> Any:
    """T2: return delta, the running average of the change in an update, after an update that made `change`."""
    return gamma * before + (1.0 - gamma) * change


def moved(weights: Any, delta: Any, updates: Any) -> Any:
    """T2: return the weights expected after `updates` further updates, or earlier ones if negative."""
    return weights + updates * delta
