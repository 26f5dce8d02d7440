"""Times of a training step with tensors on a device, on one rank; and how far copies run beside kernels."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

WARM_UP, STEPS = 12, 30
PROFILED_STEPS = 3
# Variables of each system; DDP has none of Horovod's.
SYSTEMS: dict[str, dict[str, str]] = {
    "DDP, Gloo": {},
    "DDP, NCCL": {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
    "sync": {},
    "sync, fusion=optimal": {"PACELINE_FUSION": "optimal"},
    "pipelined": {"PACELINE_EXCHANGE": "pipelined"},
    "sync, q8": {"PACELINE_CODEC": "q8"},
}
MODELS = ("resnet50", "transformer", "tiny")


@dataclass
class Found:
    """Result of one rank. `overlap`: share of the copies' time that kernels ran beside; None without a GPU."""

    step_ms: float
    parameters: int
    overlap: float | None = None
    trace: str = ""


def network(name: str, device: str) -> tuple[Any, dict[str, Any]]:
    """Return a model of MODELS and one batch; a call with the batch returns an object with its loss."""
    import transformers

    torch.manual_seed(5)
    if name == "resnet50":
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
        inputs = {"pixel_values": torch.randn(32, 3, 224, 224), "labels": torch.randint(1000, (32,))}
    else:
        width, layers, batch = (512, 8, 16) if name == "transformer" else (32, 2, 2)
        sizes = {"n_embd": width, "n_layer": layers, "n_head": 8, "n_positions": 256, "vocab_size": 8192}
        config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
        model = transformers.GPT2LMHeadModel(config)
        tokens = torch.randint(8192, (batch, 256 if name == "transformer" else 16))
        inputs = {"input_ids": tokens, "labels": tokens}
    return model.to(device), {key: value.to(device) for key, value in inputs.items()}


def measure(system: str, name: str, device: str, store: str, trace: Path | None) -> Found:
    """Train, and return the median time of a step.

    `store`: file in which the ranks of DDP meet. `trace`: file for the trace of some steps, which is not timed.
    """
    model, batch = network(name, device)
    called, optimizer = _ddp(system, model, store) if system.startswith("DDP") else _paceline(model)

    def step() -> None:
        optimizer.zero_grad()
        called(**batch).loss.backward()
        optimizer.step()

    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    times_ms = []
    for number in range(WARM_UP + STEPS):
        wait()
        begin_s = time.perf_counter()
        step()
        wait()
        if number >= WARM_UP:
            times_ms.append(1e3 * (time.perf_counter() - begin_s))
    found = Found(statistics.median(times_ms), sum(one.numel() for one in model.parameters()))
    if device != "cpu" and trace is not None:
        found.overlap, found.trace = _profiled(step, trace), str(trace)
    return found


def _paceline(model: Any) -> tuple[Any, Any]:
    import paceline.torch as hvd

    hvd.init()
    held = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return model, hvd.DistributedOptimizer(held, named_parameters=model.named_parameters())


def _ddp(system: str, model: Any, store: str) -> tuple[Any, Any]:
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    backend = "nccl" if system.endswith("NCCL") else "gloo"
    torch.distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    return parallel, torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)


def _profiled(step: Callable[[], None], trace: Path) -> float:
    """Return the share of the copies' time that kernels ran beside, over some steps; write their trace."""
    with torch.profiler.profile() as recording:
        for _ in range(PROFILED_STEPS):
            step()
        torch.cuda.synchronize()
    recording.export_chrome_trace(str(trace))
    copies: list[tuple[float, float]] = []
    kernels: list[tuple[float, float]] = []
    for event in recording.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            interval = event.time_range.start, event.time_range.end
            (copies if event.name.startswith("Memcpy") else kernels).append(interval)
    return shared(copies, kernels)


def shared(these: Iterable[tuple[float, float]], those: Iterable[tuple[float, float]]) -> float:
    """Return the share of the time covered by intervals `these` that intervals `those` cover, too; 0 if it is none."""
    covered, others = _merged(these), _merged(those)
    whole = sum(end - begin for begin, end in covered)
    both = sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in covered
        for other_begin, other_end in others
    )
    return both / whole if whole else 0.0


def _merged(intervals: Iterable[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
