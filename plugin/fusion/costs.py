"""Cost models of messages: from measured messages, from a network's constants, or as given; and their formats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.config import nearest
from paceline.core._core import CostModel, allreduce_cost, fit_linear, fit_measured
from paceline.errors import UserError

ALGORITHMS = ("ring", "binary-tree", "double-binary-trees", "recursive-doubling", "recursive-halving-doubling")


def linear(a_s: float, b_s_per_byte: float) -> CostModel:
    """Return the cost `a_s + b_s_per_byte * bytes`. Raises UserError for values that are negative or not finite."""
    for name, value in (("start-up", a_s), ("time per byte", b_s_per_byte)):
        if not math.isfinite(value) or value < 0:
            raise UserError(
                f"The {name} of a message cannot be {value} s.", "Give finite times of at least 0, in seconds."
            )
    return CostModel.linear(a_s, b_s_per_byte)


def parse(text: str) -> CostModel:
    """Parse `A,B`, seconds and seconds per byte, into a linear cost. Raises UserError for other texts."""
    try:
        a_s, b_s_per_byte = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"The cost {text!r} is not of the form A,B.",
            "Give the start-up in seconds and the seconds per byte, for example 1.2e-3,8e-9.",
        ) from None
    return linear(a_s, b_s_per_byte)


def of_algorithm(algorithm: str, ranks: int, alpha_s: float, beta_s: float, gamma_s: float) -> CostModel:
    """Return the cost of an all-reduce among `ranks`.

    `alpha_s`: start-up of a point-to-point message in seconds; `beta_s`, `gamma_s`: seconds to move and to add a byte.
    Raises UserError for an unknown algorithm or invalid values.
    """
    if algorithm not in ALGORITHMS:
        raise UserError(f"There is no all-reduce algorithm {algorithm!r}.", nearest(algorithm, list(ALGORITHMS)))
    try:
        return CostModel.linear(*allreduce_cost(algorithm, ranks, alpha_s, beta_s, gamma_s))
    except ValueError as error:
        raise UserError(
            f"The cost of {algorithm} among {ranks} ranks (alpha {alpha_s}, beta {beta_s}, gamma {gamma_s}) cannot be "
            f"computed: {error}.",
            "Give at least one rank and finite times of at least 0: seconds, seconds per byte, seconds per byte.",
        ) from None


def fit(samples: Sequence[tuple[float, float]], *, measured: bool = False) -> CostModel:
    """Fit a cost model to messages as (bytes, seconds): a line that is robust to outliers.

    With `measured`, a curve through the median of each size. Raises UserError if the samples allow no fit.
    """
    try:
        return fit_measured(samples) if measured else CostModel.linear(*fit_linear(samples))
    except ValueError as error:
        raise UserError(
            f"No cost can be fitted to {len(samples)} measured messages: {error}.",
            "Measure messages of several sizes: HOROVOD_FUSION_THRESHOLD=0 sends every tensor alone. `paceline plan` "
            "also takes a cost with --cost A,B.",
        ) from None


def text(costs: CostModel) -> str:
    """Format the model for users: start-up, time per byte and the resulting rate."""
    rate = f" ({1e-9 / costs.b_s_per_byte:.3g} GB/s)" if costs.b_s_per_byte else ""
    line = f"{1e3 * costs.a_s:.3g} ms + {1e9 * costs.b_s_per_byte:.3g} ns per byte{rate}"
    return f"{len(costs.points)} measured sizes, about {line}" if costs.points else line


def to_json(costs: CostModel) -> dict[str, Any]:
    """Return the model as JSON values; `points` are empty for a line."""
    points = [[size, seconds] for size, seconds in costs.points]
    return {"a_s": costs.a_s, "b_s_per_byte": costs.b_s_per_byte, "points": points}
