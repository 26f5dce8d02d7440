"""Every exchange with tensors on a GPU that two ranks share: values.

    python -m integration_tests.gpu                 (half a minute; --device cpu runs the same without a GPU)

Horovod may be built with or without CUDA: paceline.horovod.shims.host_staging describes the path without. Exits with 1
if a value was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import paceline.torch as hvd
from integration_tests.support import exact_training as exact


def values(device: str) -> dict[str, str]:
    """Result of each case on this rank: "right", or the error."""
    hvd.init()
    rank, size, found = hvd.rank(), hvd.size(), {}
    cases: dict[str, Callable[[], None]] = {
        f"{exchange}{', ' + codec if codec else ''}": lambda exchange=exchange, codec=codec: exact.train(  # type: ignore[misc]
            rank, size, exchange, codec, device
        )
        for exchange in exact.EXCHANGES
        for codec in ([None, "q8"] if exchange in exact.WITH_CODEC else [None])
    }
    cases |= {
        "operations": lambda: exact.operations(rank, size, device),
        "sync, fp16 compression": lambda: compressed(rank, size, device),
        "GradScaler, an overflow": lambda: overflow(rank, device),
        "fused AdamW, clipped": lambda: like_one_process(rank, size, device, "gpu.adamw", lambda model: model),
        "torch.compile": lambda: like_one_process(rank, size, device, "gpu.compiled", torch.compile),
        "no synchronisation in backward": lambda: unsynchronised(rank, device),
    }
    for name, case in cases.items():
        try:
            case()
            found[name] = "right"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
            print(f"rank {rank}, {name}:", traceback.format_exc(), file=sys.stderr, flush=True)
    hvd.barrier()
    return found


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


def like_one_process(rank: int, size: int, device: str, name: str, step_of: Callable[[Any], Any]) -> None:
    """Compare fused AdamW with clipped gradients to one process; `step_of(model)` returns the model to call."""
    model, alone = _model(device), _model(device)
    fused = {"fused": True} if device != "cpu" else {}
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=1e-3, **fused), named_parameters=model.named_parameters(name)
    )
    other = torch.optim.AdamW(alone.parameters(), lr=1e-3, **fused)
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
    if device == "cpu":
        return
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Paceline with tensors on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)  # in a rank: file for its findings
    arguments = parser.parse_args()
    if arguments.out:
        Path(f"{arguments.out}.{os.environ['HOROVOD_RANK']}").write_text(json.dumps(values(arguments.device)))
        return 0
    console = Console()
    card = torch.cuda.get_device_name() if arguments.device != "cpu" else "the CPU"
    console.print(f"{card}, torch {torch.__version__}, {arguments.ranks} ranks", markup=False)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rank"
        command = ["horovodrun", "-np", str(arguments.ranks), "--gloo", sys.executable, "-m", "integration_tests.gpu"]
        command += ["--device", arguments.device, "--out", str(out)]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(command, env={**os.environ, "PATH": path}, timeout=arguments.timeout)
        files = [Path(f"{out}.{rank}") for rank in range(arguments.ranks)]
        found = [json.loads(one.read_text()) for one in files if one.exists()]
    table = Table("with tensors on the device", *(f"rank {rank}" for rank in range(len(found))))
    for name in found[0] if found else []:
        table.add_row(name, *(one[name] for one in found))
    console.print(table)
    every = len(found) == arguments.ranks and all(said == "right" for one in found for said in one.values())
    return 0 if every and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
