"""For which learning rates training with late gradients settles, on the quadratic loss lambda w^2 / 2.

Yang et al., "PipeMare", MLSys 2021, Lemma 1, of which we have the formula and not the text. tau are whole numbers of
updates; alpha is the learning rate, `curvature` lambda.
"""

from __future__ import annotations

import math


def bound(tau: float, curvature: float = 1.0) -> float:
    """Lemma 1: SGD with all gradients late by tau settles for learning rates below 2/lambda sin(pi/(4 tau + 2)), and
    for no other. For a tau that is no whole number, a mean over micro-batches, it is an interpolation.
    """
    return 2 / curvature * math.sin(math.pi / (4 * tau + 2))
