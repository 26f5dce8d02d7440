"""A training loop whose steps take a chosen time, and what it says at its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import replicas_torch
from paceline.examples.benchmarks.pace import Pace

# How long a step computes, in milliseconds, and its batch: inputs and targets.
Step = tuple[float, torch.Tensor, torch.Tensor]


def train(
    model: nn.Module,
    optimizer: Any,
    steps: Iterable[Step],
    loss_of: nn.Module,
    pace: Pace,
    after_step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train `model` on `steps`, flush, and average the models where replicas have drifted apart.

    Returns "steps_per_s", the slowest rank's with the flush at the end, "apart", by how much a weight of any rank was
    away from the mean of all, "equal", whether all replicas now are, and "stats", this rank's statistics.
    """
    for compute_ms, inputs, targets in steps:
        pace.compute(compute_ms)
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
        after_step()
    optimizer.drain()
    steps_per_s = torch.tensor([pace.steps_per_s()])
    apart = replicas_torch.average(model) if hvd.exchange_stats().rounds else 0.0
    return {
        "steps_per_s": hvd.allreduce(steps_per_s, op=hvd.Min, name="steps_per_s").item(),
        "apart": apart,
        "equal": replicas_torch.equal(model),
        "stats": asdict(hvd.exchange_stats()),
    }


def distributed(model: nn.Module, optimizer: torch.optim.Optimizer, exchange: str | None) -> Any:
    """Rank 0's weights on all ranks, and `optimizer` wrapped."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), exchange=exchange)


def conclude(result: dict[str, Any]) -> None:
    """Rank 0 says `result` in the line that paceline.launch.runs reads."""
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
