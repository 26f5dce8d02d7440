"""Training and operations whose every value is known, so that they can be told right to the last bit."""

from __future__ import annotations

import time
from typing import Any

EXCHANGES = ("sync", "pipelined", "majority", "solo", "local")
# Not the pipelined one: docs/codecs.md says what its residuals lose.
WITH_CODEC = ("sync",)
SIZES = (7, 1000, 65_537)
STEPS = 12
RATE = 2.0**-4


def part(rank: int, step: int, elements: int) -> Any:
    """A gradient: whole numbers that tell whose they are and where they stand."""
    import torch

    return (torch.arange(elements) % 61 + 64 * (rank + 1) + step).float()


def train(rank: int, size: int, exchange: str, codec: str | None, device: str) -> None:
    """Train on every rank with gradients `part`, and compare the weights after the last update with one process.

    Raises AssertionError. A gradient that depends on no weight is the same however late it arrives, so after `drain`
    all exchanges have made the same updates.
    """
    import torch

    import paceline.torch as hvd

    parameters = [torch.nn.Parameter(torch.zeros(elements, device=device)) for elements in SIZES]
    named = [(f"exact.{exchange}.{codec}.{n}", one) for n, one in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=RATE), named_parameters=named, exchange=exchange, codec=codec
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        sum((one * part(rank, step, one.numel()).to(device)).sum() for one in parameters).backward()
        optimizer.step()
    optimizer.drain()
    for one in parameters:
        everyone = sum(part(other, step, one.numel()) for other in range(size) for step in range(STEPS))
        wanted, found = -RATE * everyone / size, one.detach().cpu()
        if codec is None:
            assert torch.equal(found, wanted), f"{exchange}: {found}, expected {wanted}"
        else:  # error feedback: what is still missing is less than one step's rounding
            assert (found - wanted).abs().max() < RATE * 64 * (size + 1) / 100, f"{exchange}, {codec}: {found}"
    hvd.barrier()


def operations(rank: int, size: int, device: str) -> None:
    """Run each of Horovod's operations, and `partial_allreduce`, on tensors of `device`. Raises AssertionError."""
    import torch

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
