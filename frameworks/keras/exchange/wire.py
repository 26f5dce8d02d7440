"""The Wire of an optimizer of Keras on PyTorch."""

from __future__ import annotations

from typing import Any

from paceline.exchange.keras_wire import KerasWire
from paceline.keras.backend import wire as module
from paceline.torch.exchange.tensors import TorchTensors


class TorchKerasWire(KerasWire, TorchTensors):
    """Runs eagerly; weights are variables of Keras."""

    def __init__(self, settings: Any, word: str) -> None:
        """Take what the wrapper was given; `word` is the exchange's."""
        super().__init__(module, "torch", settings, word)
