"""Models for the stages benchmark: one module per stage, the same on every rank and for every library."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.examples.benchmarks.stages.timed import Recorder, Timed

SLEEPING, BLOCKS = "sleeping", "blocks"  # stages of a layer that sleeps, and stages of blocks that compute
MODELS = (SLEEPING, BLOCKS)
ROWS = 16  # of a micro-batch
WIDTHS = {SLEEPING: 16, BLOCKS: 256}  # width of activations
DEPTH, INNER = 2, 4  # blocks of a computing stage, and the factor of their inner width
RATE = 0.01


@dataclass(frozen=True)
class Case:
    """A model of `stages` stages, and mini-batches of `microbatches` micro-batches.

    `forward_s`, `backward_s`: time of a pass of one stage and micro-batch, for sleeping stages.
    """

    model: str
    stages: int
    microbatches: int
    forward_s: float
    backward_s: float

    @property
    def fill(self) -> int:
        """Number of steps before measuring: then the pipeline is full, and both ends know the shapes of tensors."""
        return 3 + -(-2 * (self.stages - 1) // self.microbatches)


def stages_of(case: Case, recorder: Recorder) -> list[nn.Module]:
    """Make all stages, with the same weights on every rank and in any random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [Timed(_MAKE[case.model](case), recorder) for _ in range(case.stages)]


def batch_of(case: Case) -> tuple[Tensor, Tensor]:
    """One mini-batch, the same on every rank and in every step: rows, and the class of each."""
    draw = torch.Generator().manual_seed(1)
    rows, width = ROWS * case.microbatches, WIDTHS[case.model]
    return torch.randn(rows, width, generator=draw), torch.randint(width, (rows,), generator=draw)


loss_of = nn.functional.cross_entropy


def optimizer_of(parameters: Any) -> torch.optim.Optimizer:
    """Return the optimizer of one stage."""
    return torch.optim.SGD(parameters, lr=RATE, momentum=0.9)


class Sleeping(nn.Module):
    """One linear layer, and sleep instead of the computation of an accelerator: `forward_s` and `backward_s`."""

    def __init__(self, width: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, tensor: Tensor) -> Tensor:
        """Return the layer's output after the sleep."""
        output: Tensor = _Sleep.apply(self.linear(tensor), self.forward_s, self.backward_s)
        return output


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(ctx.backward_s)
        return gradients[0], None, None


class Block(nn.Module):
    """A residual block: normalisation, a wider layer, and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, INNER * width), nn.GELU(), nn.Linear(INNER * width, width)
        )

    def forward(self, tensor: Tensor) -> Tensor:
        """Return the block's output plus its input."""
        added: Tensor = self.layers(tensor)
        return tensor + added


def _blocks(case: Case) -> nn.Module:
    return nn.Sequential(*(Block(WIDTHS[case.model]) for _ in range(DEPTH)))


def _sleeping(case: Case) -> nn.Module:
    return Sleeping(WIDTHS[case.model], case.forward_s, case.backward_s)


_MAKE: dict[str, Callable[[Case], nn.Module]] = {SLEEPING: _sleeping, BLOCKS: _blocks}
