"""Exchanges of a Keras optimizer that are not synchronous, for the backend in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.exchange import worlds
from paceline.exchange.base import Exchange
from paceline.exchange.declaration import ExchangeSettings
from paceline.keras.backend import keras
from paceline.registry.exchanges import declaration_of


def exchange_of(chosen: ExchangeSettings) -> Callable[[Any], Exchange] | None:
    """What `Settings.exchange` is for `chosen`: makes that of one optimizer. None: Horovod's own."""
    if chosen.synchronous:
        return None

    declaration = declaration_of(chosen)

    def make(settings: Any) -> Exchange:
        adapter: Any
        if keras.backend.backend() == "tensorflow":
            from paceline.tensorflow.exchange.adapter import TensorFlowAdapter

            adapter = TensorFlowAdapter(settings, declaration.word)
        else:
            from paceline.keras.exchange.adapter import KerasTorchAdapter

            adapter = KerasTorchAdapter(settings, declaration.word)
        made: Exchange = declaration.make(chosen, adapter)
        worlds.watch(made)
        return made

    return make
