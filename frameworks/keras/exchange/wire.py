"""Wire of a Keras optimizer on PyTorch."""

from __future__ import annotations

from typing import Any

from paceline.exchange.keras_wire import KerasWire
from paceline.keras.backend import wire as module
from paceline.torch.exchange.tensors import TorchTensors


class TorchKerasWire(KerasWire, TorchTensors):
    """Eager wire whose weights are variables of Keras."""

    def __init__(self, settings: Any, word: str) -> None:
        """Set up the wire of one optimizer; `word`: the exchange's."""
        super().__init__(module, "torch", settings, word)
