"""Training and operations whose every value is known, so that they can be checked to the last bit."""

from __future__ import annotations

import random
import time
from typing import Any

import torch

EXCHANGES = ("sync", "pipelined", "majority", "solo", "local", "split")
WITH_CODEC = ("sync", "pipelined")
SIZES = (7, 1000, 65_537)
STEPS = 12
RATE = 2.0**-4


def part(rank: int, step: int, elements: int) -> Any:
    """Return a gradient: whole numbers that encode rank, step and position."""
    return (torch.arange(elements) % 61 + 64 * (rank + 1) + step).float()


def train(
    rank: int, size: int, exchange: str, codec: str | None, device: str, label: str = "exact", uneven_s: float = 0
) -> None:
    """Train on every rank with gradients `part`, and compare the weights after the last update with one process.

    Raises AssertionError. A gradient that depends on no weight is the same however late it arrives, so after `drain`
    all exchanges have made the same updates. Each gradient comes up to `uneven_s` after the one before it.
    """
    import paceline.torch as hvd

    parameters = [torch.nn.Parameter(torch.zeros(elements, device=device)) for elements in SIZES]
    named = [(f"{label}.{exchange}.{codec}.{n}", one) for n, one in enumerate(parameters)]
    dice = random.Random(f"{rank}, {label}")
    for one in parameters if uneven_s else ():
        one.register_hook(lambda _: time.sleep(uneven_s * dice.random()))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=RATE), named_parameters=named, exchange=exchange, codec=codec
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        sum((one * part(rank, step, one.numel()).to(device)).sum() for one in parameters).backward()
        optimizer.step()
    optimizer.drain()
    for name, one in named:
        everyone = sum(part(other, step, one.numel()) for other in range(size) for step in range(STEPS))
        wanted, found = -RATE * everyone / size, one.detach().cpu()
        if codec is None:
            assert torch.equal(found, wanted), f"{exchange}: {found}, expected {wanted}"
        else:  # error feedback: the difference is exactly the residuals of the ranks
            residuals = optimizer.state_dict()["paceline_in_flight"]["residuals"]["values"]
            own = residuals.get(name, torch.zeros(one.shape))  # none: too small to be encoded
            missing = RATE / size * hvd.allreduce(own, op=hvd.Sum, name=f"{label}.residual.{name}")
            off = (found - wanted - missing).abs().max()
            assert off < RATE * 0.01, f"rank {rank}, {name}, {codec}: off by {off / RATE} of a gradient"
    hvd.barrier()


def operations(rank: int, size: int, device: str) -> None:
    """Run each of Horovod's operations, and `partial_allreduce`, on tensors of `device`. Raises AssertionError."""
    import paceline.torch as hvd

    each = 4  # elements to and from every rank
    everyone = [part(other, 0, each * size).to(device) for other in range(size)]
    own, total, share = everyone[rank].clone(), sum(everyone), slice(each * rank, each * rank + each)
    handle = hvd.allreduce_async(own, op=hvd.Sum, name="exact.sum")
    while not hvd.poll(handle):
        time.sleep(0.001)
    assert torch.equal(hvd.synchronize(handle), total)
    grouped = hvd.grouped_allreduce([own, own[:5].clone()], op=hvd.Sum, name="exact.grouped")
    assert torch.equal(grouped[1], total[:5])
    gathered = hvd.allgather(own[: rank + 1].clone(), name="exact.gathered")
    assert torch.equal(gathered, torch.cat([one[: n + 1] for n, one in enumerate(everyone)]))
    assert torch.equal(hvd.broadcast(own, 1, name="exact.broadcast"), everyone[1])
    parameter = torch.nn.Parameter(own.clone())
    hvd.broadcast_(parameter, 1, name="exact.parameter")
    assert torch.equal(parameter, everyone[1]) and parameter.is_leaf
    found, splits = hvd.alltoall(own, torch.full((size,), each, dtype=torch.int32), name="exact.alltoall")
    assert torch.equal(found, torch.cat([one[share] for one in everyone])) and splits.tolist() == [each] * size
    assert torch.equal(hvd.reducescatter(own, op=hvd.Sum, name="exact.scattered"), total[share])
    mean, fresh = hvd.partial_allreduce(own, name="exact.partial", quorum=size)
    assert torch.equal(mean, total / size) and fresh == size
