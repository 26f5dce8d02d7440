"""Residual networks (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016)."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer, conv, dense, norm


def _conv_norm(prefix: str, suffix: str, inputs: int, outputs: int, kernel: int, side: int) -> list[Layer]:
    return [
        conv(f"{prefix}conv{suffix}", inputs, outputs, kernel, side),
        norm(f"{prefix}bn{suffix}", outputs, side * side),
    ]


def resnet20() -> tuple[Layer, ...]:
    """ResNet-20 for 32 x 32 images, 10 classes; a 1 x 1 convolution where the width changes (65 tensors)."""
    layers = _conv_norm("", "1", 3, 16, 3, 32)
    inputs = 16
    for stage, (width, side) in enumerate([(16, 32), (32, 16), (64, 8)], start=1):
        for block in range(3):
            prefix = f"layer{stage}.{block}."
            layers += _conv_norm(prefix, "1", inputs, width, 3, side)
            layers += _conv_norm(prefix, "2", width, width, 3, side)
            if inputs != width:
                layers += _conv_norm(f"{prefix}shortcut.", "", inputs, width, 1, side)
            inputs = width
    return (*layers, dense("fc", 64, 10))


def resnet50() -> tuple[Layer, ...]:
    """ResNet-50 for 224 x 224 images, 1000 classes; a block's stride is in its 3 x 3 convolution (161 tensors)."""
    layers = _conv_norm("", "1", 3, 64, 7, 112)
    inputs, in_side = 64, 56
    for stage, (blocks, width, side) in enumerate([(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)], start=1):
        for block in range(blocks):
            prefix = f"layer{stage}.{block}."
            layers += _conv_norm(prefix, "1", inputs, width, 1, in_side)
            layers += _conv_norm(prefix, "2", width, width, 3, side)
            layers += _conv_norm(prefix, "3", width, 4 * width, 1, side)
            if block == 0:
                layers += _conv_norm(f"{prefix}downsample.", "", inputs, 4 * width, 1, side)
            inputs, in_side = 4 * width, side
    return (*layers, dense("fc", 2048, 1000))
