"""PyTorch's tensors and weights for exchanges, also of Keras on PyTorch."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.ops import Cell
from paceline.exchange.wire import Array
from paceline.torch.state.saved import array_of


class TensorCell:
    """Cell held in a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def read(self) -> Tensor:
        """Return the tensor."""
        return self._tensor

    def assign(self, value: Any) -> None:
        """Copy a tensor, an array or a number into the cell."""
        with torch.no_grad():
            self._tensor.copy_(torch.as_tensor(value))

    def value(self) -> Array:
        """Return the value as an array."""
        return array_of(self._tensor)

    set = assign


@functools.cache
def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class TorchTensors:
    """Operations of a Wire on PyTorch's tensors and weights."""

    graph_ops = None

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Select from two tensors, element by element."""
        return torch.where(predicate, one, other)

    def like(self, tensor: Tensor) -> tuple[tuple[int, ...], str]:
        """Return shape and NumPy's type name."""
        return tuple(tensor.shape), _name_of(tensor.dtype)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """Return a tensor of zeros in CPU memory."""
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    def zeros_like(self, tensor: Tensor) -> Tensor:
        """Return zeros of a tensor's shape, type and layout."""
        return torch.zeros_like(tensor)

    def value(self, weight: Tensor) -> Tensor:
        """Return the tensor in a weight; no gradient flows through it."""
        return weight.detach()

    def trains(self, weight: Tensor) -> bool:
        """Return True if the weight is trained, not frozen."""
        return weight.requires_grad

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor."""
        return tensor.clone()

    def assign(self, weight: Tensor, value: Any) -> None:
        """Copy values into a weight; its memory layout stays."""
        with torch.no_grad():
            weight.copy_(torch.as_tensor(value))

    def cell_of(self, weight: Tensor) -> Cell:
        """Return a cell with the weight's current values."""
        return TensorCell(self.value(weight).clone())
