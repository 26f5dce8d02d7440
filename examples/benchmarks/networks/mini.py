"""A network small enough to try the harness in a second."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer, conv, dense, norm


def mini() -> tuple[Layer, ...]:
    """Return seven tensors of odd sizes and one layer without tensors."""
    return (
        conv("conv", 3, 7, 3, 9),
        norm("norm", 7, 81),
        Layer("pooling", (), 7 * 81),
        dense("hidden", 63, 101),
        dense("output", 101, 11),
    )
