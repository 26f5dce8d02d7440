"""Very many small gradients: what each of them costs the host is longer than any layer computes."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer

TENSORS = 1000
ELEMENTS = 1024  # 4 KiB of float32


def many() -> tuple[Layer, ...]:
    """A thousand layers of one tensor, all of the same work."""
    return tuple(Layer(f"layer{index}", (("weight", (ELEMENTS,)),), 1) for index in range(TENSORS))
