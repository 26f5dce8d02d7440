"""Corrections for late gradients: numbers that an executor applies; each works with any asynchronous schedule.

T1 and T2: Yang et al., "PipeMare", MLSys 2021; tau are those of delays.py. Graded momentum: Ajanthan et al., "Nesterov
Method for Asynchronous Pipeline Parallel Optimization", ICML 2025, and its repository AsyncPP.
"""

from __future__ import annotations

import math

# T2's D that gives, to first order, the gamma = 1 - 2/(tau_forward - tau_backward + 1) of the paper's theory.
CORRECTION = math.exp(-2)
HIGHEST_MOMENTUM = 0.99


def learning_rate_factor(tau_forward: float, update: int, annealing_updates: int) -> float:
    """T1: return the factor of the learning rate in an update, counted from 0.

    It is tau^-p with p = 1 - min(update/K, 1), where K = annealing_updates; 1 from update K on, and always for K = 0.
    The paper does not define tau < 1; here it counts as 1, so that the rate is never raised.
    """
    if annealing_updates <= 0:
        return 1.0
    power = 1 - min(update / annealing_updates, 1.0)
    return float(max(tau_forward, 1.0) ** -power)


def correction_weight(tau_forward: float, tau_backward: float) -> float:
    """T2: return the weight of delta in w - weight * delta, which a BACKWARD uses in place of the schedule's weights w.

    delta is the running mean of changes by one update.
    """
    return tau_forward - tau_backward


def delta_decay(correction: float, tau_forward: float, tau_backward: float) -> float:
    """T2: return gamma = D^(1/(tau_forward - tau_backward)), with D = correction in (0, 1).

    After each update delta = gamma * delta + (1 - gamma) * (change of the weights). Returns 0, so that delta is the
    last change, if both taus are equal; delta is multiplied by 0 then. Raises ValueError for another D.
    """
    if not 0 < correction < 1:
        raise ValueError(f"correction is {correction}, give a number between 0 and 1")
    late = correction_weight(tau_forward, tau_backward)
    return float(correction ** (1 / late)) if late > 0 else 0.0


def graded_momentum(momentum: float, stage: int, stages: int, highest: float = HIGHEST_MOMENTUM) -> float:
    """AsyncPP: return Nesterov's momentum on this stage, which is nearer to `highest` the more stages follow.

    The last stage, whose gradients are never late, keeps `momentum`.
    """
    return momentum + (highest - momentum) * (stages - 1 - stage) / stages


def look_ahead(momentum: float, tau: float) -> float:
    """Return the movement of weights in the next tau updates by momentum alone, in multiples of their last change.

    This is m + m^2 + ... + m^tau, for any tau >= 0; m for tau = 1, which is Nesterov's own look-ahead.
    """
    if momentum == 1:
        return tau
    return float(momentum * (1 - momentum**tau) / (1 - momentum))


def least_microbatches(stages: int) -> int:
    """Bounded drift: return the number of micro-batches per update with which no weight is more than one version old.

    It is 2P-1 where a stage is 2(P-i)+1 micro-batches ahead, as in PipeMare's paper. Paceline's schedules are P-i ahead
    and need P-1 (delays.most_late).
    """
    return 2 * stages - 1
