"""Networks of this benchmark: layers with tensors of real shapes, and the amount of work of each layer.

Work is counted in multiply-accumulates (MACs) of the forward pass for one sample. Normalisation and embedding layers
have no matrix product; they count one MAC for each element they write. Activations, pooling and additions count
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One stretch of computation. All gradients of its tensors exist when its backward ends; it may have no tensors."""

    name: str
    tensors: tuple[tuple[str, Shape], ...]
    macs: int

    @property
    def parameters(self) -> int:
        """Number of elements of all tensors."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    def scaled(self, factor: float) -> Layer:
        """Return a layer with the same work and flattened tensors of `factor` times as many elements (at least one)."""
        return Layer(
            self.name,
            tuple((name, (max(1, round(math.prod(shape) * factor)),)) for name, shape in self.tensors),
            self.macs,
        )


def conv(name: str, inputs: int, outputs: int, kernel: int, out_side: int, bias: bool = False) -> Layer:
    """Square convolution with `outputs` output channels of `out_side` x `out_side`."""
    weight: tuple[tuple[str, Shape], ...] = (("weight", (outputs, inputs, kernel, kernel)),)
    return Layer(
        name,
        weight + ((("bias", (outputs,)),) if bias else ()),
        outputs * inputs * kernel * kernel * out_side * out_side,
    )


def norm(name: str, width: int, positions: int) -> Layer:
    """Batch or layer normalisation of `positions` vectors of `width` elements."""
    return Layer(name, (("weight", (width,)), ("bias", (width,))), width * positions)


def dense(name: str, inputs: int, outputs: int, positions: int = 1) -> Layer:
    """Fully connected layer with bias, applied at `positions` places."""
    return Layer(name, (("weight", (outputs, inputs)), ("bias", (outputs,))), outputs * inputs * positions)
