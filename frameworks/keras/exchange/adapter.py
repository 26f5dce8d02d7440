"""How exchanges see an optimizer of Keras on PyTorch (see paceline.exchange.adapter)."""

from __future__ import annotations

from typing import Any

from paceline.exchange.wire_adapter import WireAdapter
from paceline.keras.backend import wire
from paceline.torch.exchange.tensors import TorchTensors


class KerasTorchAdapter(WireAdapter, TorchTensors):
    """Runs eagerly; weights are variables of Keras."""

    def __init__(self, settings: Any, word: str) -> None:
        """See WireAdapter."""
        super().__init__(wire, "torch", settings, word)
