"""For which learning rates training with late gradients settles: PipeMare's Lemmas 1 to 3, by the roots of polynomials.

On the quadratic loss lambda w^2 / 2. Recurrences of weights are polynomials, highest power first: training settles if
all roots are inside the unit circle. `discrepancy_curvature` is the paper's Delta: how much the gradient depends on the
difference between the weights of the two passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Polynomial = NDArray[np.float64]
_GRID = 400  # tested learning rates, each 3 % above the last
_HALVINGS = 60


def of_delay(tau: int, alpha: float, curvature: float = 1.0, momentum: float = 0.0) -> Polynomial:
    """Lemma 1, and Lemma 3 with momentum: x times x^(tau+1) - (1+beta) x^tau + beta x^(tau-1) + alpha lambda."""
    made = np.zeros(tau + 3)
    made[:3] = 1, -(1 + momentum), momentum
    made[-2] += alpha * curvature
    return made


def of_discrepancy(
    tau_forward: int,
    tau_backward: int,
    alpha: float,
    curvature: float,
    discrepancy_curvature: float,
    gamma: float | None = None,
) -> Polynomial:
    """Polynomial of Lemma 2: w moves by -alpha ((lambda + Delta) w[t - tau_forward] - Delta u).

    u is w[t - tau_backward]; with T2's gamma, it is w[t - tau_backward] - (tau_forward - tau_backward) delta[t].
    """
    late = tau_forward - tau_backward
    made = np.zeros(tau_forward + 2)
    made[:2] = 1, -1
    made[-1] += alpha * (curvature + discrepancy_curvature)
    made[-1 - late] -= alpha * discrepancy_curvature
    if gamma is None:
        return made
    delta = np.zeros(tau_forward + 2)
    delta[:2] = 1, -1
    delta *= alpha * discrepancy_curvature * late * (1 - gamma)
    return np.polyadd(np.polymul(made, [1, -gamma]), delta)


def radius(polynomial: Polynomial) -> float:
    """Return the largest absolute value of a root: growth of the weights per update, in the long run."""
    return float(np.abs(np.roots(polynomial)).max())


def first_unstable(of_alpha: Callable[[float], Polynomial], most: float = 4.0) -> float:
    """The least learning rate at which training does not settle, to 12 digits; infinity if it settles up to `most`."""

    def unstable(alpha: float) -> bool:
        return radius(of_alpha(alpha)) > 1

    below = 0.0
    for above in np.geomspace(most * 1e-5, most, _GRID):
        if unstable(above):
            break
        below = float(above)
    else:
        return math.inf
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        below, above = (below, middle) if unstable(middle) else (middle, above)
    return float(above)
