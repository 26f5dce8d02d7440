"""A network that computes: ResNet-20 on images of 32 x 32, trained on the processor by SGD with momentum."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from paceline.examples.benchmarks.networks.network import Network, write_mark

BATCH = 32
CLASSES = 10
SEED = 20


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    # Without running statistics: they are buffers, which only DDP would broadcast in every step.
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs, track_running_stats=False),
    )


class _Block(nn.Module):
    """Two convolutions and the shortcut around them, a 1 x 1 convolution where the width changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = _conv(inputs, outputs, stride=stride)
        self.second = _conv(outputs, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else _conv(inputs, outputs, kernel=1, stride=stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the output of the block."""
        return functional.relu(self.second(functional.relu(self.first(images))) + self.shortcut(images))


def resnet20() -> nn.Sequential:
    """Return the network that resnet.py describes."""
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [_Block(inputs, outputs) for inputs, outputs in pairwise(widths)]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES)]
    return nn.Sequential(_conv(3, widths[0]), nn.ReLU(), *blocks, *ends)


class ComputingNetwork(Network):
    """ResNet-20 and one batch of this rank, the same in every step: the values do not affect the time of a step."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.layers = resnet20()
        own = torch.Generator().manual_seed(SEED + 1 + rank)
        self._images = torch.randn(BATCH, 3, 32, 32, generator=own)
        self._labels = torch.randint(CLASSES, (BATCH,), generator=own)
        self._marks: list[torch.utils.hooks.RemovableHandle] = []

    def forward(self) -> torch.Tensor:
        """Return the loss of the forward pass."""
        if self.hurried:
            return 0 * torch.stack([parameter.sum() for parameter in self.parameters()]).sum()
        return functional.cross_entropy(self.layers(self._images), self._labels)

    def optimizer(self) -> torch.optim.Optimizer:
        """SGD with momentum. Its rate is so small that marked gradients, up to 300, do not move the weights."""
        return torch.optim.SGD(self.parameters(), lr=1e-8, momentum=0.9)

    def write_marks(self, first: int, rank: int) -> None:
        """Compute as usual, and replace each gradient by a mark as it appears."""
        for index, parameter in enumerate(self.parameters(), first):

            def marked(gradient: torch.Tensor, index: int = index) -> torch.Tensor:
                mark = torch.empty_like(gradient, memory_format=torch.contiguous_format)
                write_mark(mark, index, rank)
                return mark

            self._marks.append(parameter.register_hook(marked))

    def unmark(self) -> None:
        """Keep the computed gradients again."""
        for mark in self._marks:
            mark.remove()
        self._marks.clear()
