"""A training loop whose steps take a chosen time, and its result."""

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

# Compute time of a step in milliseconds, and its batch: inputs and targets.
Step = tuple[float, torch.Tensor, torch.Tensor]


def train(
    model: nn.Module,
    optimizer: Any,
    steps: Iterable[Step],
    loss_of: nn.Module,
    pace: Pace,
    after_step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train `model` on `steps`, drain, and average the models where replicas have drifted apart.

    Returns:
        Figures by name: "steps"; "steps_per_s", the slowest rank's including the drain; "apart", the largest distance
            of a weight of any rank from the mean over ranks; "equal", True if all replicas are equal at the end;
            "stats", this rank's statistics.
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
        "steps": pace.steps,
        "steps_per_s": hvd.allreduce(steps_per_s, op=hvd.Min, name="steps_per_s").item(),
        "apart": apart,
        "equal": replicas_torch.equal(model),
        "stats": asdict(hvd.exchange_stats()),
    }


def distributed(model: nn.Module, optimizer: torch.optim.Optimizer, exchange: str | None) -> Any:
    """Broadcast rank 0's weights, and return `optimizer` wrapped."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), exchange=exchange)


def conclude(result: dict[str, Any]) -> None:
    """Print `result` on rank 0 in the format that paceline.launch.runs reads."""
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
