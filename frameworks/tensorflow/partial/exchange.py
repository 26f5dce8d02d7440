"""Partial rounds of TensorFlow gradients, in graphs and eagerly (see paceline.partial_updates)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.partial.settings import Partial
from paceline.partial.updates import PartialUpdates
from paceline.pipelined.updates_in_flight import Reduce


def partial_updates(partial: Partial, settings: Any, reduce: Reduce) -> PartialUpdates:
    """Partial rounds of one optimizer or tape."""

    def flush(reduce: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        # Operations that run eagerly have no names.
        return list(tf.function(reduce)(tensors))

    return PartialUpdates(partial, settings, reduce, "tensorflow", tf.zeros, flush)
