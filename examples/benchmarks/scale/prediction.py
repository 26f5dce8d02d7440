"""Fit of the constants of a coordination (paceline.predict.coordination) to measurements.

`fit` finds the three constants, none below 0, from coordinations measured on one machine. It minimises the squares of
relative errors, because times span several powers of ten. Hops and messages of one machine grow with different powers
of the number of ranks p (p and p^2 along a ring), which makes the constants distinguishable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from paceline.predict.coordination import Constants, Work, handled, time_s


def fit(measured: Sequence[tuple[Work, float]], cores: int) -> Constants:
    """Return the constants that best fit the measured coordinations (work, seconds) on one machine of `cores`.

    Raises ValueError without measurements, or for a time that is not above 0.
    """
    if not measured or any(seconds <= 0 for _, seconds in measured):
        raise ValueError("constants need coordinations that were measured and took some time")
    rows = np.array([[1.0, work.hops, handled(work, cores)] for work, _ in measured])
    relative = rows / np.array([[seconds] for _, seconds in measured])
    goal = np.ones(len(measured))
    best, least = np.zeros(3), np.inf
    # With three columns, trying every choice of nonzero ones is simplest.
    for count in range(1, min(3, len(measured)) + 1):
        for columns in combinations(range(3), count):
            found, *_ = np.linalg.lstsq(relative[:, columns], goal, rcond=None)
            error = float(np.sum((relative[:, columns] @ found - goal) ** 2))
            # An equal error with more columns is no better.
            if (found >= 0).all() and error < least * (1 - 1e-9) - 1e-18:
                best, least = np.zeros(3), error
                best[list(columns)] = found
    return Constants(*map(float, best))


def worst_error(measured: Sequence[tuple[Work, float]], constants: Constants, cores: int) -> float:
    """Largest relative error of the fit: 0.1 is 10 %."""
    return max(abs(time_s(work, constants, cores=cores) / seconds - 1) for work, seconds in measured)
