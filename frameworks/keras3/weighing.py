"""Weighted means for Keras and TensorFlow's tapes: valid weights, and gradients exchanged with their weight.

A gradient g of a rank with weight w is sent as one vector: w g with w appended. The mean is the sum of the first
divided by the sum of the second (docs/guides/weights.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paceline.config import SAMPLES as SAMPLES
from paceline.errors import UsageError

REMEDY = "Use a finite number >= 0: the samples or tokens of this rank's batch, 0 where it has none."


def unusable(weight: Any, where: str = "") -> UsageError:
    """Return the error for an invalid weight; `where` it was found."""
    return UsageError(f"{where}weight={weight!r} cannot be used.", REMEDY)


def check(weight: Any, settings: Any, by_samples: bool = True, origin: str = "") -> None:
    """Raise UsageError for a weight that cannot be used with these settings of an optimizer or tape.

    `by_samples`: True if it may be "samples". `origin`: source of the weight, if not the script.
    """
    if weight is None:
        return
    against = {
        "an op other than Average": settings.op != settings.average,
        "compression=": getattr(settings.compression, "__name__", "NoneCompressor") != "NoneCompressor",
        "a codec": settings.encoding is not None and settings.encoding.choice.lossy,
    }
    found = next((words for words, present in against.items() if present), "")
    if found:
        given = origin or f"weight={weight!r}"
        raise UsageError(f"{given} was given together with {found}.", "Leave one of the two out.")
    if isinstance(weight, str):
        if weight == SAMPLES and by_samples:
            return
        words = f"{SAMPLES!r}, a number or a variable" if by_samples else "a number or a scalar tensor"
        raise UsageError(f"weight={weight!r} cannot be used.", f"Use {words}.")
    if not (0 <= weight < math.inf if is_number(weight) else _scalar(weight)):
        raise unusable(weight)


def is_number(weight: Any) -> bool:
    """Return True for a number of Python or NumPy, False for tensors and variables."""
    return isinstance(weight, (int, float)) or (type(weight).__module__ == "numpy" and getattr(weight, "ndim", 1) == 0)


def _scalar(weight: Any) -> bool:
    """Return True for a tensor or variable that may hold one number; its shape may still be unknown."""
    shape = getattr(weight, "shape", None)
    if shape is None or type(weight).__module__ == "numpy":
        return False
    return getattr(shape, "rank", 0) is None or all(length in (None, 1) for length in shape)


def own(wire: Any, reducer: Any, settings: Any, weight: Any, grad: Any) -> Any:
    """Return a gradient that stays on its rank, scaled by the settings; zeros if the weight is 0. See `combined`."""
    if weight is not None:
        w = wire.checked(wire.native(weight), wire.hvd.rank())
        grad = wire.mean_of(wire.with_weight(grad, w, True), grad, False)
    return reducer.scale_local(grad) if settings.scale_local_gradients else grad


def combined(
    wire: Any,
    reducer: Any,
    settings: Any,
    weight: Any,
    grads: Sequence[Any],
    exchanged: Sequence[bool],
    reduce: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Reduce gradients with `reduce`, weighted; `exchanged`: True for gradients that are exchanged.

    `wire`: paceline.keras3.on_tensorflow or on_torch; `reducer`: its Reducer, of `settings`. Without a weight (None)
    results are those of `reduce`. A gradient that stays here is weighted over the passes of its rank. Raises UsageError
    for an unusable weight or gradient; in a graph the error comes when the graph runs.
    """
    exchange = reducer.exchange
    if exchange is not None:
        exchange.weigh(weight is not None)
    if weight is None:
        return reduce(list(grads))
    w = wire.checked(wire.native(weight), wire.hvd.rank())
    flats = [
        None if grad is None else wire.with_weight(grad, w, reducer.dense or not goes)
        for grad, goes in zip(grads, exchanged)
    ]
    # A rank without peers submits nothing: no exchange has divided.
    divided = exchange is not None and exchange.divides and wire.takes_part(settings.process_set)
    if exchange is not None:
        exchange.around.worked(w)
    means: list[Any] = []
    for flat, grad, goes in zip(reduce(flats), grads, exchanged):
        mean = None if grad is None else wire.mean_of(flat, grad, divided and goes)
        if grad is not None and not goes and settings.scale_local_gradients:
            mean = reducer.scale_local(mean)  # again: the mean has lost a factor common to elements and weight
        means.append(mean)
    return means
