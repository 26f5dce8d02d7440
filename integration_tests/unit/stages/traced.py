"""A model that is traced and cut by torch.distributed.pipelining."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from integration_tests.support.stage_training import N

WIDTH, ROWS = 5, 2


class Net(nn.Module):
    """What stage 0 makes is used by stages 1 and 2, and the input by the last one; `scale` is of no submodule."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH, dtype=torch.float64))
        self.first = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.middle = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.float64), nn.Tanh())
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        random = torch.Generator().manual_seed(11)  # stages are threads here
        with torch.no_grad():
            for one in self.parameters():
                one.copy_(torch.randn(one.shape, generator=random, dtype=torch.float64) / 2)

    def forward(self, value: Tensor, weight: Tensor | None = None) -> Tensor:
        one = self.first(value).tanh()
        two = self.middle(one) * self.scale
        three = self.last(self.drop(two) + one) + value
        return three if weight is None else three * weight


def data(step: int, rows: int = N * ROWS) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    return tuple(torch.randn(rows, WIDTH, generator=random, dtype=torch.float64) for _ in range(2))


SAMPLE = torch.ones(ROWS, WIDTH, dtype=torch.float64)
CUTS = ["middle", "last"]


@contextlib.contextmanager
def torch_distributed() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
