"""Training whose every gradient is known, so that any exchange of it can be told right to the last bit."""

from __future__ import annotations

from typing import Any

EXCHANGES = ("sync", "pipelined", "majority", "solo", "local")
WITH_CODEC = ("sync", "pipelined")
SIZES = (7, 1000, 65_537)
STEPS = 12
RATE = 2.0**-4


def part(rank: int, step: int, elements: int) -> Any:
    """A gradient: whole numbers that tell whose they are and where they stand."""
    import torch

    return (torch.arange(elements) % 61 + 64 * (rank + 1) + step).float()


def train(rank: int, size: int, exchange: str, codec: str | None, device: str, **arguments: Any) -> None:
    """Train on every rank with gradients `part`, and compare the weights after the last update with one process.

    Raises AssertionError. A gradient that depends on no weight is the same however late it arrives, so after `drain`
    all exchanges have made the same updates.
    """
    import torch

    import paceline.torch as hvd

    parameters = [torch.nn.Parameter(torch.zeros(elements, device=device)) for elements in SIZES]
    named = [(f"exact.{exchange}.{codec}.{n}", one) for n, one in enumerate(parameters)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=RATE), named_parameters=named, exchange=exchange, codec=codec, **arguments
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
