"""Non-synchronous exchanges of a Keras optimizer, for the backend in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.exchange.base import Exchange
from paceline.exchange.declaration import ExchangeSettings
from paceline.keras.backend import keras
from paceline.registry.making import maker


def exchange_of(chosen: ExchangeSettings) -> Callable[[Any], Exchange] | None:
    """Return the factory that `Settings.exchange` holds for `chosen`; None for Horovod's synchronous exchange."""
    wire: Any
    if keras.backend.backend() == "tensorflow":
        from paceline.keras3.tensorflow_wire import TensorFlowWire as wire
    else:
        from paceline.keras.exchange.wire import TorchKerasWire as wire
    return maker(chosen, wire)
