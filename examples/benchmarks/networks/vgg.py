"""VGG-16 (Simonyan and Zisserman, "Very Deep Convolutional Networks", ICLR 2015), configuration D."""

from __future__ import annotations

from paceline.examples.benchmarks.networks.layers import Layer, conv, dense

# (convolutions, width, side of the image) of each stage; a 2 x 2 pooling ends a stage.
STAGES = [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)]


def vgg16() -> tuple[Layer, ...]:
    """VGG-16 for 224 x 224 images, 1000 classes (32 tensors; one of them has three quarters of all parameters)."""
    layers: list[Layer] = []
    inputs = 3
    for stage, (convolutions, width, side) in enumerate(STAGES, start=1):
        for index in range(1, convolutions + 1):
            layers.append(conv(f"conv{stage}_{index}", inputs, width, 3, side, bias=True))
            inputs = width
    layers += [dense("fc6", 512 * 7 * 7, 4096), dense("fc7", 4096, 4096), dense("fc8", 4096, 1000)]
    return tuple(layers)
