"""A model of many small gradients: the host's cost of each is higher than the compute time of any layer."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer

TENSORS = 1000
ELEMENTS = 1024  # 4 KiB of float32


def many() -> tuple[Layer, ...]:
    """Return a thousand layers of one tensor, all with equal work."""
    return tuple(Layer(f"layer{index}", (("weight", (ELEMENTS,)),), 1) for index in range(TENSORS))
