"""A network whose layers sleep: compute takes time but no processor, as if it ran on an accelerator of its own.

A real framework runs it: autograd walks the layers backwards, each layer's gradients appear when its share of the
backward time is over, and the hooks of Horovod and DDP see them as they see any gradient. Nothing is calculated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.benchmarks.layers import Shape
from paceline.benchmarks.models import Model


class Accelerator:
    """A device that computes one thing after another.

    A computation ends a given time after the one before it ended, not after the host noticed that end: what the host
    does meanwhile (hooks, copies) and how late a sleep wakes up does not add up, as with kernels queued on a GPU.
    """

    def __init__(self) -> None:
        self._free_at_s = 0.0

    def begin(self) -> None:
        """A pass starts now."""
        self._free_at_s = time.monotonic()

    def compute(self, duration_s: float) -> None:
        """Return when the device has computed for `duration_s`; never earlier."""
        self._free_at_s += duration_s
        rest_s = self._free_at_s - time.monotonic()
        if rest_s > 0:
            time.sleep(rest_s)


def _memory(shape: Shape) -> torch.Tensor:
    """Zeros, float32. The system gives large ones pages only when they are written, so unused ones cost no memory."""
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))


_PART = 13 * 2**16


def _parts(gradient: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Where a part of the flattened gradient begins, the part, and j mod 13 for its elements j.

    In parts, because a temporary copy of the largest gradients on every rank would fill the machine's memory.
    """
    flat = gradient.view(-1)
    pattern = torch.remainder(torch.arange(min(_PART, flat.numel())), 13).to(gradient.dtype)
    for start in range(0, flat.numel(), _PART):
        part = flat[start : start + _PART]
        yield start, part, pattern[: part.numel()]


class _Pass(torch.autograd.Function):
    """One layer's forward and backward. A scalar goes along to tie the layers together."""

    @staticmethod
    def forward(ctx: Any, layer: SleepingLayer, carrier: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        layer.accelerator.compute(layer.forward_s)
        return torch.zeros_like(carrier)

    @staticmethod
    def backward(ctx: Any, *carriers: torch.Tensor) -> Any:
        layer: SleepingLayer = ctx.layer
        layer.accelerator.compute(layer.backward_s)
        # A new view each time: autograd takes over a gradient that nobody else holds, and copies any other.
        return None, carriers[0], *(values.detach() for values in layer.gradients)


class _Turn(torch.autograd.Function):
    """Behind the last layer: the start of the backward pass."""

    @staticmethod
    def forward(ctx: Any, accelerator: Accelerator, carrier: torch.Tensor) -> torch.Tensor:
        ctx.accelerator = accelerator
        return torch.zeros_like(carrier)

    @staticmethod
    def backward(ctx: Any, *carriers: torch.Tensor) -> Any:
        ctx.accelerator.begin()
        return None, carriers[0]


class SleepingLayer(nn.Module):
    """Parameters of given shapes, and for each a gradient in memory of its own, kept for the whole run.

    `gradients` become visible as `.grad` when the backward is over. A system that averages in place writes to them.
    """

    def __init__(self, tensors: tuple[tuple[str, Shape], ...], forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.forward_s = forward_s
        self.backward_s = backward_s
        self.accelerator = Accelerator()
        for name, shape in tensors:
            self.register_parameter(name, nn.Parameter(_memory(shape)))
        self.gradients = [_memory(shape) for _, shape in tensors]

    def forward(self, carrier: torch.Tensor) -> torch.Tensor:
        """Sleep, and hand the scalar on."""
        result: torch.Tensor = _Pass.apply(self, carrier, *self.parameters())
        return result


class SleepingNetwork(nn.Module):
    """`model` as layers that sleep one after another on one accelerator. Called without arguments; returns a scalar
    whose backward() sleeps the backward pass.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.accelerator = Accelerator()
        self.layers: list[SleepingLayer] = []
        for layer, share in zip(model.layers, model.shares, strict=True):
            sleeping = SleepingLayer(layer.tensors, share * model.forward_ms / 1e3, share * model.backward_ms / 1e3)
            sleeping.accelerator = self.accelerator
            self.layers.append(sleeping)
            self.add_module(layer.name.replace(".", "_"), sleeping)

    def forward(self) -> torch.Tensor:
        """The forward pass."""
        self.accelerator.begin()
        carrier = torch.zeros((), requires_grad=True)
        for layer in self.layers:
            carrier = layer(carrier)
        loss: torch.Tensor = _Turn.apply(self.accelerator, carrier)
        return loss

    def mark(self, rank: int) -> None:
        """Write gradients that tell whose they are: element j of tensor i is 8 (rank + 1) + i mod 251 + j mod 13."""
        for index, gradient in enumerate(self._gradients()):
            for _, part, pattern in _parts(gradient):
                torch.add(pattern, 8 * (rank + 1) + index % 251, out=part)

    def check_mean(self, size: int) -> None:
        """Check that every `.grad` is the mean over `size` ranks of what `mark` wrote.

        Raises RuntimeError that names the first tensor that is not, the element, and both values.
        """
        for index, (name, parameter) in enumerate(self.named_parameters()):
            if parameter.grad is None:
                raise RuntimeError(f"parameter {name} has no gradient after a step")
            for start, found, pattern in _parts(parameter.grad):
                expected = pattern + (8 * (size + 1) / 2 + index % 251)
                wrong = (found - expected).abs() > 1e-3
                if wrong.any():
                    first = int(wrong.nonzero()[0])
                    raise RuntimeError(
                        f"gradient of {name}, element {start + first}: expected the mean over {size} ranks,"
                        f" {expected[first]:g}, found {found[first]:g}"
                    )

    def _gradients(self) -> list[torch.Tensor]:
        return [gradient for layer in self.layers for gradient in layer.gradients]


class NoUpdate(torch.optim.Optimizer):
    """An optimizer that leaves the parameters alone: the update would run on the accelerator, not on the host."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        """Nothing."""
