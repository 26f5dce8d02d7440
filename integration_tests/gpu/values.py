"""Values of every exchange, operation and feature with tensors on a device, on one rank."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

import paceline.torch as hvd
from integration_tests.support import exact_training as exact

RIGHT = "right"


def values(device: str) -> dict[str, str]:
    """Return the result of each case on this rank: RIGHT, or the error."""
    hvd.init()
    rank, size, found = hvd.rank(), hvd.size(), {}
    cases: dict[str, Callable[[], None]] = {
        f"{exchange}{', ' + codec if codec else ''}": lambda exchange=exchange, codec=codec: exact.train(  # type: ignore[misc]
            rank, size, exchange, codec, device
        )
        for exchange in exact.EXCHANGES
        for codec in ([None, "q8"] if exchange in exact.WITH_CODEC else [None])
    }
    cases |= {"operations": lambda: exact.operations(rank, size, device), **features(rank, size, device)}
    if device != "cpu":
        cases |= {
            "capturable AdamW": lambda: like_one_process(rank, size, device, "gpu.capturable", capturable=True),
            "no synchronisation in backward": lambda: unsynchronised(rank, device),
            "CUDA graphs are refused": lambda: captured(rank, device),
        }
    for name, case in cases.items():
        try:
            case()
            found[name] = RIGHT
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
            print(f"rank {rank}, {name}:", traceback.format_exc(), file=sys.stderr, flush=True)
    hvd.barrier()
    return found


def features(rank: int, size: int, device: str) -> dict[str, Callable[[], None]]:
    """Return checks of what optimizers are combined with, by name."""
    compiled = functools.partial(torch.compile, backend="aot_eager" if device == "cpu" else "inductor")
    return {
        "sync, fp16 compression": lambda: compressed(rank, size, device),
        "GradScaler, an overflow": lambda: overflow(rank, device),
        "fused AdamW, clipped": lambda: like_one_process(rank, size, device, "gpu.adamw", fused=True),
        "torch.compile": lambda: like_one_process(rank, size, device, "gpu.compiled", compiled),
    }


def _model(device: str, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.GELU(), torch.nn.Linear(65, 7)).to(device)


def _batch(rank: int, step: int, device: str) -> Any:
    return torch.randn(8, 33, generator=torch.Generator().manual_seed(100 * step + rank)).to(device)


def compressed(rank: int, size: int, device: str) -> None:
    """Train with fp16 compression."""
    weight = torch.nn.Parameter(torch.zeros(1001, device=device))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("gpu.half", weight)], compression=hvd.Compression.fp16
    )
    (weight * (rank + 1)).sum().backward()
    optimizer.step()
    assert (weight == -(size + 1) / 2).all(), weight


def overflow(rank: int, device: str) -> None:
    """One rank's gradients overflow: all ranks skip that update."""
    model = _model(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters("gpu.scaler")
    )
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    before = None
    for step in range(3):
        optimizer.zero_grad()
        loss = model(_batch(rank, step, device)).square().mean()
        if step == 1 and rank == 0:
            loss = loss * torch.inf
        if step == 1:
            before = [one.detach().clone() for one in model.parameters()]
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 1:
            assert before is not None
            assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert scaler.get_scale() == 512.0, scaler.get_scale()
    _equal_everywhere(model, "gpu.scaler")


def _equal_everywhere(model: Any, name: str) -> None:
    for key, value in model.state_dict().items():
        everyone = hvd.allgather(value.reshape(1, -1), name=f"{name}.{key}")
        assert all(torch.equal(everyone[0], one) for one in everyone), f"{name}: {key} differs"


def like_one_process(
    rank: int, size: int, device: str, name: str, step_of: Callable[[Any], Any] = lambda model: model, **options: bool
) -> None:
    """Compare AdamW with clipped gradients to one process.

    `step_of(model)` returns the model to call; `options` are AdamW's.
    """
    model, alone = _model(device), _model(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=1e-3, **options), named_parameters=model.named_parameters(name)
    )
    other = torch.optim.AdamW(alone.parameters(), lr=1e-3, **options)
    called = step_of(model)
    for step in range(5):
        optimizer.zero_grad()
        called(_batch(rank, step, device)).square().mean().backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        other.zero_grad()
        alone(torch.cat([_batch(one, step, device) for one in range(size)])).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
        other.step()
    for one, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
    _equal_everywhere(model, name)


def unsynchronised(rank: int, device: str) -> None:
    """Check that the backward pass queues kernels and copies without waiting for them."""
    model = _model(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters("gpu.unsynchronised")
    )
    for step in range(3):
        optimizer.zero_grad()
        loss = model(_batch(rank, step, device)).square().mean()
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        optimizer.step()


def captured(rank: int, device: str) -> None:
    """Check that a backward pass within the capture of a CUDA graph is refused, and that training goes on after it."""
    model = _model(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters("gpu.captured")
    )
    batch = _batch(rank, 0, device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries allocate their workspaces before a capture
        model(batch).sum()
    torch.cuda.current_stream().wait_stream(stream)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            model(batch).square().mean().backward()
    except hvd.UsageError as error:
        assert "captures no CUDA graph" in str(error), error
    else:
        raise AssertionError("the capture was not refused")
    optimizer.zero_grad()
    model(_batch(rank, 1, device)).square().mean().backward()
    optimizer.step()
    _equal_everywhere(model, "gpu.captured")
