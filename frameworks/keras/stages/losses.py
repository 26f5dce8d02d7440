"""Losses that a user may give to a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.errors import UsageError
from paceline.keras.backend import keras

_REMEDY = "Give a loss of Keras, or a function of targets and outputs."
# How each reduction of Keras combines the rows of a micro-batch.
_REDUCTIONS = {"sum_over_batch_size": "mean", "mean": "mean", "mean_with_sample_weight": "mean", "sum": "sum"}


class _Function(keras.losses.Loss):
    """A function of targets and outputs, averaged as fit() of Keras does."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(name=getattr(function, "__name__", "loss"))
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of each row."""
        return self._function(y_true, y_pred)


def loss_of(asked: Any) -> tuple[Any, str]:
    """Return a Keras loss and its reduction over rows, "mean" or "sum".

    `asked`: a Keras loss, its name, or a function of targets and outputs. Raises UsageError for anything else.
    """
    try:
        found = keras.losses.get(asked)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"loss={asked!r} is not known to Keras: {error}", "Give a loss of Keras or a function."
        ) from error
    if found is None:
        raise UsageError("loss=None: a pipeline trains with a loss.", _REMEDY)
    if not isinstance(found, keras.losses.Loss):
        found = _Function(found)
    if found.reduction not in _REDUCTIONS:
        raise UsageError(
            f"The loss {found.name!r} has the reduction {found.reduction!r}: expected one number for a batch.",
            'Use "sum_over_batch_size" or "sum".',
        )
    return found, _REDUCTIONS[found.reduction]
