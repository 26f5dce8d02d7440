"""Timing of a stage's passes by the module itself, independent of its caller."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

Span = tuple[float, float]  # begin and end, in seconds of the monotonic clock


class Recorder:
    """Passes of one stage: their times, and the largest number of micro-batches between forward and backward."""

    def __init__(self) -> None:
        self.forwards: list[Span] = []
        self.backwards: list[Span] = []
        self.most_held = 0
        self._held = 0
        self._began_s = 0.0

    def clear(self) -> None:
        """Forget all passes so far; no micro-batch is in flight."""
        self._held = 0
        self.begin()

    def begin(self) -> None:
        """Start measuring; micro-batches in flight stay counted."""
        self.forwards, self.backwards = [], []
        self.most_held = self._held

    def forward(self, began_s: float) -> None:
        """Record the end of a forward pass."""
        self.forwards.append((began_s, time.monotonic()))
        self._held += 1
        self.most_held = max(self.most_held, self._held)

    def backward_begins(self) -> None:
        """Record the start of a backward pass: a gradient reached the end of the stage."""
        self._began_s = time.monotonic()

    def backward_ends(self) -> None:
        """Record the end of a backward pass: the gradient reached the beginning of the stage."""
        self.backwards.append((self._began_s, time.monotonic()))
        self._held -= 1


def overlap_s(spans: list[Span], begin_s: float, end_s: float) -> float:
    """Seconds from `begin_s` to `end_s` that are within `spans`, which do not overlap each other."""
    return sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in spans)


class Timed(nn.Module):
    """Wrapper of `module`, of one tensor, that reports its passes to `recorder`."""

    def __init__(self, module: nn.Module, recorder: Recorder) -> None:
        super().__init__()
        self.module = module
        self.recorder = recorder

    def forward(self, tensor: Tensor) -> Tensor:
        """Return the module's output."""
        began_s = time.monotonic()
        # The anchor needs a gradient even if the input does not, as on the first stage.
        anchor = torch.empty(0, requires_grad=True)
        output: Tensor = _End.apply(self.module(_Beginning.apply(tensor, anchor, self.recorder)), self.recorder)
        self.recorder.forward(began_s)
        return output


class _Beginning(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, anchor: Tensor, recorder: Recorder) -> Tensor:
        ctx.recorder = recorder
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.recorder.backward_ends()
        return gradients[0] if ctx.needs_input_grad[0] else None, None, None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, recorder: Recorder) -> Tensor:
        ctx.recorder = recorder
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.recorder.backward_begins()
        return gradients[0], None
