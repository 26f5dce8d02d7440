"""PyTorch rank of the demo: a character-level transformer, wrapped by Horovod's optimizer or by DDP."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from paceline.examples import characters
from paceline.examples.characters_torch import Net
from paceline.examples.demo import measuring

BATCH = 16
RATE = 2e-3


class Wrapped(NamedTuple):
    """A model and its optimizer on all ranks. `finish` makes replicas equal and returns True if they are."""

    net: Callable[[torch.Tensor], torch.Tensor]
    optimizer: torch.optim.Optimizer
    finish: Callable[[], bool]


def _with_horovod(model: nn.Module) -> Wrapped:
    import paceline.torch as hvd
    from paceline.examples import replicas_torch

    hvd.init()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=RATE), named_parameters=model.named_parameters()
    )

    def finish() -> bool:
        optimizer.drain()
        if hvd.exchange_stats().rounds:  # replicas of an exchange that does not wait drift apart
            replicas_torch.average(model)
        return replicas_torch.equal(model)

    return Wrapped(model, optimizer, finish)


def _with_ddp(model: nn.Module, rank: int, size: int, chosen: argparse.Namespace) -> Wrapped:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    store = chosen.result.with_suffix(".store").absolute()
    dist.init_process_group("gloo", init_method=store.as_uri(), rank=rank, world_size=size)

    def finish() -> bool:
        weights = torch.cat([value.flatten() for value in model.state_dict().values()])
        first = weights.clone()
        dist.broadcast(first, 0)
        same = torch.tensor([int(torch.equal(first, weights))])
        dist.all_reduce(same, dist.ReduceOp.MIN)
        return bool(same.item())

    return Wrapped(DistributedDataParallel(model), torch.optim.Adam(model.parameters(), lr=RATE), finish)


def main() -> None:
    """Train, test on text that no rank has seen, and write rank 0's result."""
    chosen = measuring.arguments()
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    torch.manual_seed(0)
    model = Net()
    loss_of = nn.CrossEntropyLoss()
    windows = characters.training(rank, size, chosen.steps * BATCH, seed=0)
    timed = measuring.Steps(rank, size, chosen.late_ms, chosen.steps)

    def loss_at(net: Callable[[torch.Tensor], torch.Tensor], step: int) -> torch.Tensor:
        inputs, targets = (torch.from_numpy(part).long() for part in windows.batch(step, BATCH))
        loss: torch.Tensor = loss_of(net(inputs), targets)
        return loss

    weights = {name: value.clone() for name, value in model.state_dict().items()}
    warm_up = torch.optim.Adam(model.parameters(), lr=RATE)
    for step in range(measuring.ALONE_STEPS):
        timed.begin_alone()
        warm_up.zero_grad()
        loss_at(model, step).backward()
        warm_up.step()
        timed.end_alone()
    model.load_state_dict(weights)

    wrapped = _with_ddp(model, rank, size, chosen) if chosen.wrapper == "ddp" else _with_horovod(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        wrapped.optimizer, lambda step: characters.rate_factor(step, chosen.steps)
    )
    for step in range(chosen.steps):
        timed.begin()
        wrapped.optimizer.zero_grad()
        loss_at(wrapped.net, step).backward()
        wrapped.optimizer.step()
        schedule.step()
        timed.end()
    equal = wrapped.finish()
    held_out = characters.held_out()
    with torch.no_grad():
        guessed = model.eval()(torch.from_numpy(held_out.inputs).long()).argmax(1)
    accuracy = (guessed == torch.from_numpy(held_out.targets).long()).float().mean().item()
    timed.conclude(chosen.result, accuracy, equal)


if __name__ == "__main__":
    main()
