"""Learning rates for which training with late gradients converges, on the quadratic loss lambda w^2 / 2.

Yang et al., "PipeMare", MLSys 2021, Lemma 1, of which Paceline uses the formula. tau are whole numbers of updates;
alpha is the learning rate, `curvature` lambda.
"""

from __future__ import annotations

import math


def bound(tau: float, curvature: float = 1.0) -> float:
    """Lemma 1: return the bound 2/lambda sin(pi/(4 tau + 2)) of learning rates.

    SGD with all gradients late by tau converges exactly for rates below it. For a fractional tau, a mean over
    micro-batches, it is an interpolation.
    """
    return 2 / curvature * math.sin(math.pi / (4 * tau + 2))
