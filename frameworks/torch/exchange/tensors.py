"""PyTorch's tensors and weights for exchanges; for Keras on PyTorch as well."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.ops import Cell
from paceline.exchange.wire import Array
from paceline.torch.state.saved import array_of


class TensorCell:
    """A cell that is a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def read(self) -> Tensor:
        """See Cell.read."""
        return self._tensor

    def assign(self, value: Any) -> None:
        """See Cell.assign: a tensor, an array or a number."""
        with torch.no_grad():
            self._tensor.copy_(torch.as_tensor(value))

    def value(self) -> Array:
        """See Cell.value."""
        return array_of(self._tensor)

    set = assign


@functools.cache
def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class TorchTensors:
    """The tensors and weights of a Wire."""

    graph_ops = None

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """See Wire.where."""
        return torch.where(predicate, one, other)

    def like(self, tensor: Tensor) -> tuple[tuple[int, ...], str]:
        """See Wire.like."""
        return tuple(tensor.shape), _name_of(tensor.dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """See Wire.zeros."""
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    def zeros_like(self, tensor: Tensor) -> Tensor:
        """See Wire.zeros_like."""
        return torch.zeros_like(tensor)

    def value(self, weight: Tensor) -> Tensor:
        """See Wire.value."""
        return weight.detach()

    def trains(self, weight: Tensor) -> bool:
        """See Wire.trains."""
        return weight.requires_grad

    def copy(self, tensor: Tensor) -> Tensor:
        """See Wire.copy."""
        return tensor.clone()

    def assign(self, weight: Tensor, value: Any) -> None:
        """See Wire.assign: memory stays laid out as it was."""
        with torch.no_grad():
            weight.copy_(torch.as_tensor(value))

    def cell_of(self, weight: Tensor) -> Cell:
        """See Wire.cell_of."""
        return TensorCell(self.value(weight).clone())
