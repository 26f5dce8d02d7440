"""Every exchange with tensors on a GPU that two ranks share, and what its steps take beside DDP.

    python -m integration_tests.gpu                 (minutes; --device cpu runs the same without a GPU)

Horovod may be built with or without CUDA: paceline.horovod.shims.host_staging says what happens without. Prints a table
of what was right, one of step times, and writes a profiler trace of one step. Exits with 1 if a value was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SYSTEMS: dict[str, dict[str, str]] = {
    "ddp": {},
    "sync": {},
    "armed": {"PACELINE_FUSION": "optimal", "PACELINE_ARMED": "1", "PACELINE_WAKE": "events"},
    "pipelined": {"PACELINE_EXCHANGE": "pipelined"},
    "majority": {"PACELINE_EXCHANGE": "majority"},
    "local": {"PACELINE_EXCHANGE": "local"},
}
MODELS = ("resnet50", "transformer")
WARM_UP, MOST_STEPS = 8, 60


# --- values -------------------------------------------------------------------------------------------------------


def values(device: str) -> dict[str, str]:
    """What is right on this rank: by case "right", or what was raised."""
    import paceline.torch as hvd
    from integration_tests.support import exact_training as exact

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
        "operations": lambda: operations(rank, size, device),
        "sync, fp16 compression": lambda: compressed(rank, size, device),
        "GradScaler, an overflow": lambda: overflow(rank, device),
        "fused AdamW, clipped": lambda: adamw(rank, size, device),
        "torch.compile": lambda: compiled(rank, size, device),
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


def operations(rank: int, size: int, device: str) -> None:
    """Horovod's operations, on tensors of the device."""
    import torch

    import paceline.torch as hvd
    from integration_tests.support.exact_training import part

    everyone = [part(other, 0, 12).to(device) for other in range(size)]
    own = everyone[rank].clone()
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum, name="gpu.sum"), sum(everyone))
    assert torch.equal(hvd.broadcast(own, 1, name="gpu.broadcast"), everyone[1])
    assert torch.equal(hvd.allgather(own[: rank + 1].clone(), name="gpu.gathered"), torch.cat([
        one[: n + 1] for n, one in enumerate(everyone)
    ]))  # fmt: skip
    grouped = hvd.grouped_allreduce([own, own[:5].clone()], op=hvd.Sum, name="gpu.grouped")
    assert torch.equal(grouped[1], sum(everyone)[:5])
    each = 12 // size
    assert torch.equal(
        hvd.reducescatter(own, op=hvd.Sum, name="gpu.scattered"), sum(everyone)[each * rank : each * rank + each]
    )
    found, _ = hvd.alltoall(own, torch.full((size,), each, dtype=torch.int32), name="gpu.alltoall")
    assert torch.equal(found, torch.cat([one[each * rank : each * rank + each] for one in everyone]))
    total, fresh = hvd.partial_allreduce(own, name="gpu.partial", quorum=size)
    assert torch.equal(total * size, sum(everyone)) and fresh == size, (total, fresh)
    whole = torch.nn.Linear(3, 2).to(device)
    hvd.broadcast_parameters(whole.state_dict(), root_rank=0)
    assert all(torch.equal(one, other) for one, other in zip(
        hvd.broadcast_object([p.detach().cpu() for p in whole.parameters()]),
        [p.detach().cpu() for p in whole.parameters()], strict=True,
    ))  # fmt: skip


def _model(device: str, seed: int = 3) -> Any:
    import torch

    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.GELU(), torch.nn.Linear(65, 7)).to(device)


def _batch(rank: int, step: int, device: str) -> Any:
    import torch

    return torch.randn(8, 33, generator=torch.Generator().manual_seed(100 * step + rank)).to(device)


def compressed(rank: int, size: int, device: str) -> None:
    """Halves on the wire."""
    import torch

    import paceline.torch as hvd

    weight = torch.nn.Parameter(torch.zeros(1001, device=device))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), named_parameters=[("gpu.half", weight)], compression=hvd.Compression.fp16
    )
    (weight * (rank + 1)).sum().backward()
    optimizer.step()
    assert (weight == -(size + 1) / 2).all(), weight


def overflow(rank: int, device: str) -> None:
    """One rank's gradients overflow: no rank makes that update."""
    import torch

    import paceline.torch as hvd

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
    import torch

    import paceline.torch as hvd

    for key, value in model.state_dict().items():
        everyone = hvd.allgather(value.reshape(1, -1), name=f"{name}.{key}")
        assert all(torch.equal(everyone[0], one) for one in everyone), f"{name}: {key} differs"


def _like_one_process(rank: int, size: int, device: str, name: str, step_of: Callable[[Any], Any]) -> None:
    """`step_of(model)` is the model to call; optimizers are fused AdamW, gradients clipped, as in one process."""
    import torch

    import paceline.torch as hvd

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


def adamw(rank: int, size: int, device: str) -> None:
    """Fused AdamW and clipping."""
    _like_one_process(rank, size, device, "gpu.adamw", lambda model: model)


def compiled(rank: int, size: int, device: str) -> None:
    """A compiled model."""
    import torch

    _like_one_process(rank, size, device, "gpu.compiled", torch.compile)


def unsynchronised(rank: int, device: str) -> None:
    """The backward pass queues kernels and copies, and waits for none of them."""
    import torch

    import paceline.torch as hvd

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


# --- times --------------------------------------------------------------------------------------------------------


def _resnet50() -> tuple[Any, Callable[[str], Any]]:
    import torch
    import torchvision

    return torchvision.models.resnet50(), lambda device: torch.randn(32, 3, 224, 224, device=device)


def _transformer() -> tuple[Any, Callable[[str], Any]]:
    import torch

    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    return model, lambda device: torch.randn(32, 128, 512, device=device)


def step_times(system: str, name: str, device: str, limit_s: float, trace: str) -> dict[str, float]:
    """Milliseconds of a step and of one without an exchange, over up to `limit_s` seconds."""
    import torch

    torch.manual_seed(1)
    model, inputs_of = {"resnet50": _resnet50, "transformer": _transformer}[name]()
    model, inputs = model.to(device), inputs_of(device)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    called = model
    if system == "ddp":
        called = torch.nn.parallel.DistributedDataParallel(model)
    else:
        import paceline.torch as hvd

        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(f"{system}.{name}"))

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    def step() -> None:
        optimizer.zero_grad()
        called(inputs).square().mean().backward()
        optimizer.step()

    warm_up = WARM_UP * (12 if system == "armed" else 1)  # plans come into force
    for _ in range(warm_up):
        step()
    wait()
    # Ranks must make as many steps: the first decides.
    begin, steps = time.perf_counter(), []
    for _ in range(5):
        step()
    wait()
    each_s = (time.perf_counter() - begin) / 5
    number = int(_first_ranks(system, max(5, min(MOST_STEPS, limit_s / each_s))))
    for _ in range(number):
        begin = time.perf_counter()
        step()
        wait()
        steps.append(1e3 * (time.perf_counter() - begin))
    begin = time.perf_counter()
    for _ in range(number):
        step()
    wait()
    unwaited = 1e3 * (time.perf_counter() - begin) / number
    if trace:
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "cpu" else [])
        with profile(activities=kinds) as taken:
            step()
            step()
            wait()
        taken.export_chrome_trace(trace)
    return {"step_ms": statistics.median(steps), "free_running_ms": unwaited, "steps": number}


def _first_ranks(system: str, value: float) -> float:
    import torch

    if system == "ddp":
        there = torch.tensor([value], dtype=torch.float64)
        torch.distributed.broadcast(there, 0)
        return float(there)
    import horovod.torch as horovod

    return float(horovod.broadcast_object(value, 0, name="gpu.first_ranks"))


def alone_ms(name: str, device: str) -> float:
    """Milliseconds of a step of one process with the device for itself."""
    import torch

    torch.manual_seed(1)
    model, inputs_of = {"resnet50": _resnet50, "transformer": _transformer}[name]()
    model, inputs = model.to(device), inputs_of(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    steps = []
    for number in range(WARM_UP + 20):
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()
        if number >= WARM_UP:
            steps.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(steps)


# --- ranks and launcher -------------------------------------------------------------------------------------------


def as_rank(arguments: argparse.Namespace) -> None:
    """What one rank does; the first one writes what it found."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2 - 1))
    rank, system = int(os.environ["HOROVOD_RANK"]), arguments.system
    found: Any
    if system == "values":
        found = values(arguments.device)
    else:
        if system == "ddp":
            torch.distributed.init_process_group(
                "gloo",
                init_method=f"file://{arguments.out}.meeting",
                rank=rank,
                world_size=int(os.environ["HOROVOD_SIZE"]),
            )
        else:
            import paceline.torch as hvd

            hvd.init()
        found = {}
        for name in arguments.model or MODELS:
            trace = f"{arguments.out}.{name}.trace.json" if rank == 0 else ""
            found[name] = step_times(system, name, arguments.device, arguments.limit_s, trace)
    Path(f"{arguments.out}.{rank}").write_text(json.dumps(found))
    if system == "ddp":
        torch.distributed.destroy_process_group()


def launched(system: str, arguments: argparse.Namespace, folder: Path) -> list[Any]:
    """What the ranks of one system found; [] if they failed."""
    out = folder / system
    command = ["horovodrun", "-np", str(arguments.ranks), "--gloo", sys.executable, "-m", "integration_tests.gpu"]
    command += [
        "--system",
        system,
        "--device",
        arguments.device,
        "--limit-s",
        str(arguments.limit_s),
        "--out",
        str(out),
    ]
    command += [part for name in arguments.model or [] for part in ("--model", name)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **SYSTEMS.get(system, {})}
    try:
        done = subprocess.run(command, env=env, timeout=arguments.timeout, capture_output=True, text=True)
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        said = f"no end within {error.timeout} s\n{error.stdout!r}"
    Path(f"{out}.log").write_text(said)
    found = [Path(f"{out}.{rank}") for rank in range(arguments.ranks)]
    return [json.loads(one.read_text()) for one in found if one.exists()]


def main() -> int:
    """Launch all, print tables."""
    parser = argparse.ArgumentParser(description="Paceline with tensors on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=5.0, help="seconds of steps for each system and model")
    parser.add_argument("--timeout", type=float, default=150.0, help="of each system, in seconds")
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--only", action="append", choices=["values", *SYSTEMS])
    parser.add_argument("--out", type=Path, help="a folder for logs and traces (default: a temporary one)")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.system:
        as_rank(arguments)
        return 0
    import torch

    console, ok = Console(width=120), True
    folder = arguments.out or Path(tempfile.mkdtemp(prefix="paceline-gpu-"))
    folder.mkdir(parents=True, exist_ok=True)
    card = torch.cuda.get_device_name() if arguments.device != "cpu" else "the CPU"
    console.print(f"{card}, torch {torch.__version__}, {arguments.ranks} ranks; logs in {folder}", markup=False)
    wanted = arguments.only or ["values", *SYSTEMS]
    if "values" in wanted:
        found = launched("values", arguments, folder)
        ok = len(found) == arguments.ranks
        table = Table("with tensors on the device", *(f"rank {rank}" for rank in range(len(found))))
        for name in found[0] if found else []:
            table.add_row(name, *(one[name] for one in found))
            ok = ok and all(one[name] == "right" for one in found)
        console.print(table)
    systems = [one for one in SYSTEMS if one in wanted]
    if systems:
        table = Table("model", "alone", *systems, title="median ms of a step (and of free-running steps)")
        by_system = {system: launched(system, arguments, folder) for system in systems}
        for name in arguments.model or MODELS:
            cells = []
            for system in systems:
                one = by_system[system][0].get(name) if by_system[system] else None
                cells.append(f"{one['step_ms']:.1f} ({one['free_running_ms']:.1f})" if one else "failed")
            table.add_row(name, f"{alone_ms(name, arguments.device):.1f}", *cells)
        console.print(table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
