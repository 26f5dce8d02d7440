"""Weighted means for Keras and TensorFlow's tapes: what a weight is, and gradients that travel with theirs.

A gradient g of a rank with the weight w travels as one vector, w g with w behind it; the mean is the sum of the first
divided by the sum of the second (docs/weights.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paceline.config import SAMPLES as SAMPLES
from paceline.errors import UsageError


def check(weight: Any, settings: Any) -> None:
    """Raise UsageError for a weight that cannot be used with these settings of an optimizer or tape."""
    if weight is None:
        return
    against = {
        "an op other than Average": settings.op != settings.average,
        "compression=": getattr(settings.compression, "__name__", "NoneCompressor") != "NoneCompressor",
        "a codec": settings.travel is not None and settings.travel.choice.lossy,
    }
    found = next((words for words, present in against.items() if present), "")
    if found:
        raise UsageError(f"weight={weight!r} was given together with {found}.", "Leave one of the two out.")
    if isinstance(weight, str) and weight != SAMPLES:
        raise UsageError(f"weight={weight!r} cannot be used.", f"Use {SAMPLES!r}, a number or a variable.")
    if is_number(weight) and not 0 <= weight < math.inf:
        raise UsageError(
            f"weight={weight!r} cannot be used.",
            "Use a finite number >= 0: the samples or tokens of this rank's batch, 0 where it has none.",
        )


def is_number(weight: Any) -> bool:
    """Return True for a number of Python or NumPy, False for tensors and variables."""
    return isinstance(weight, (int, float)) or (type(weight).__module__ == "numpy" and getattr(weight, "ndim", 1) == 0)


def combined(
    wire: Any,
    reducer: Any,
    weight: Any,
    grads: Sequence[Any],
    travels: Sequence[bool],
    reduce: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Return what `reduce` makes of gradients, weighted; `travels`: which of them go to other ranks.

    `wire`: paceline.keras3.on_tensorflow or on_torch; `reducer`: its Reducer. Without a weight (None) results are those
    of `reduce`.
    """
    exchange = reducer.exchange
    if exchange is not None:
        exchange.weigh(weight is not None)
    if weight is None:
        return reduce(list(grads))
    flats = [wire.with_weight(grad, weight, reducer.dense) if goes else grad for grad, goes in zip(grads, travels)]
    # A rank without others hands nothing in: nobody has divided.
    divided = exchange is not None and exchange.divides and wire.takes_part(exchange.wire.process_set)
    if exchange is not None:
        exchange.around.worked(weight)
    results = reduce(flats)
    return [
        wire.mean_of(result, grad, divided) if goes else result for result, grad, goes in zip(results, grads, travels)
    ]
