"""A network whose layers sleep: compute takes time but no processor, as on a separate accelerator.

A real framework runs it: autograd runs the layers' backward passes, each layer's gradients appear when its share of the
backward time is over, and the hooks of Horovod and DDP are called as for any gradient. Nothing is computed.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from paceline.examples.benchmarks.networks.layers import Shape
from paceline.examples.benchmarks.networks.models import Model
from paceline.examples.benchmarks.networks.network import Network, write_mark

# A host that takes longer to read weights has waited for them.
WAIT_S = 1e-3


class Accelerator:
    """A device that computes one thing after another.

    A computation ends a given time after the one before it ended, not after the host noticed that end: what the host
    does meanwhile (hooks, copies) and how late a sleep wakes up does not add up, as with kernels queued on a GPU.
    """

    def __init__(self) -> None:
        self.hurried = False
        self._free_at_s = 0.0

    def begin(self) -> None:
        """Begin a pass now."""
        self._free_at_s = time.monotonic()

    def fed(self, since_s: float) -> None:
        """Record a wait of the host for weights since `since_s`; the next computation cannot begin before now."""
        now_s = time.monotonic()
        if now_s - since_s > WAIT_S:
            self._free_at_s = max(self._free_at_s, now_s)

    def compute(self, duration_s: float) -> None:
        """Return when the device has computed for `duration_s`; never earlier unless it is `hurried`."""
        if self.hurried:
            return
        self._free_at_s += duration_s
        rest_s = self._free_at_s - time.monotonic()
        if rest_s > 0:
            time.sleep(rest_s)


def _memory(shape: Shape) -> torch.Tensor:
    """Return float32 zeros. The kernel maps pages of large arrays only when written: unused ones cost no memory."""
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))


class _Pass(torch.autograd.Function):
    """One layer's forward and backward pass. A scalar tensor connects the layers."""

    @staticmethod
    def forward(ctx: Any, layer: SleepingLayer, activation: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        layer.accelerator.compute(layer.forward_s)
        return torch.zeros_like(activation)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        layer: SleepingLayer = ctx.layer
        layer.accelerator.compute(layer.backward_s)
        # A new view each time: autograd takes ownership of an unreferenced gradient, and copies any other.
        return None, grads[0], *(values.detach() for values in layer.gradients)


class _Turn(torch.autograd.Function):
    """Start of the backward pass, after the last layer."""

    @staticmethod
    def forward(ctx: Any, accelerator: Accelerator, activation: torch.Tensor) -> torch.Tensor:
        ctx.accelerator = accelerator
        return torch.zeros_like(activation)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.accelerator.begin()
        return None, grads[0]


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
            self.register_parameter(name.replace(".", "_"), nn.Parameter(_memory(shape)))
        self.gradients = [_memory(shape) for _, shape in tensors]

    def forward(self, activation: torch.Tensor) -> torch.Tensor:
        """Sleep, and return the scalar; weights are read as in an ordinary layer."""
        begin_s = time.monotonic()
        for parameter in self.parameters():
            parameter.data_ptr()
        self.accelerator.fed(begin_s)
        result: torch.Tensor = _Pass.apply(self, activation, *self.parameters())
        return result


class SleepingNetwork(Network):
    """`model` as layers that sleep one after another on one accelerator. Its backward() sleeps the backward pass."""

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
        """Run the forward pass."""
        self.accelerator.hurried = self.hurried
        self.accelerator.begin()
        activation = torch.zeros((), requires_grad=True)
        for layer in self.layers:
            activation = layer(activation)
        loss: torch.Tensor = _Turn.apply(self.accelerator, activation)
        return loss

    def optimizer(self) -> torch.optim.Optimizer:
        """Return an optimizer without effect."""
        return NoUpdate(self.parameters())

    def write_marks(self, first: int, rank: int) -> None:
        """Write marks into the gradients, where they stay until a system writes there."""
        for index, gradient in enumerate(self._gradients(), first):
            write_mark(gradient, index, rank)

    def unmark(self) -> None:
        """Do nothing: marks are as good as any other values."""

    def _gradients(self) -> list[torch.Tensor]:
        return [gradient for layer in self.layers for gradient in layer.gradients]


class NoUpdate(torch.optim.Optimizer):
    """An optimizer that leaves the parameters alone: the update would run on the accelerator, not on the host."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        """Do nothing."""
