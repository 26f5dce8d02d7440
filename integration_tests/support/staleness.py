"""PipeMare's formulas against stale gradients as a recursion in one process. It loads no library of Horovod's."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.pipelined.staleness import moved, rate_factor, retention, trend

CURVATURE = np.array([1.0, 0.3, 0.05])
# K, rate, momentum, steps of annealing, correction and steps of warm-up.
CASES = [(2, 0.1, 0.9, 0, 0.135, 0), (3, 0.05, 0.9, 20, 0.5, 0), (4, 0.1, 0.0, 15, 0.0, 5), (2, 0.2, 0.5, 9, 0.01, 4)]


def reference(
    steps: int,
    k: int,
    alpha: float,
    momentum: float,
    annealing_steps: int,
    correction: float,
    warmup: int,
    keras: bool = False,
) -> list[Any]:
    """The real weights after every step, K - 1 steps of draining included: SGD on sum(CURVATURE w^2) / 2.

    `keras`: momentum is that of Keras, which keeps what former rates made of gradients, not the gradients.
    """
    gamma = retention(correction, k - 1) if correction else 0.0
    w, velocity, delta = np.ones(3), np.zeros(3), np.zeros(3)
    late: list[Any] = []
    updates, seen = 0, []

    def update(gradient: Any, factor: float) -> None:
        nonlocal w, velocity, delta
        rate = alpha * factor
        velocity = momentum * velocity + (rate if keras else 1.0) * gradient
        before, w = w, w - (1.0 if keras else rate) * velocity
        delta = trend(delta, w - before, gamma)

    for step in range(steps + k - 1):
        if step < warmup:
            update(CURVATURE * w, 1.0)
        else:
            if step < steps:
                late.append(CURVATURE * (moved(w, delta, len(late)) if correction else w))
            if step - warmup >= k - 1:
                update(late.pop(0), rate_factor(k - 1, min(1, updates / annealing_steps)) if annealing_steps else 1.0)
                updates += 1
        seen.append(w)
    return seen
