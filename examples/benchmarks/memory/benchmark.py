"""Peak memory: settings, systems, and multiples of the parameters' bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.examples.benchmarks.steps.benchmark import SYSTEMS as STEPS
from paceline.examples.benchmarks.steps.team import StepTeam
from paceline.examples.benchmarks.steps.worker import Measured as StepsMeasured
from paceline.launch.quantities import ELEMENT_BYTES

SYNC_EVERY = 4  # of the local exchange; divides STEPS
STEPS_MADE = 8
_WORKER = "paceline.examples.benchmarks.memory.worker"
_PLANNED = {"planned": True}


def _like(name: str, **variables: str) -> dict[str, str]:
    """Return the environment of a system of training steps, and variables."""
    return {**STEPS[name][1], **variables}


_SPLIT = {"PACELINE_EXCHANGE": "split"}
# Name -> function of worker.py, environment, options of the worker.
SYSTEMS: dict[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
    "alone": ("alone", {}, {}),
    "ddp": ("ddp", {}, {}),
    "stock": ("horovod", _like("stock"), {}),
    "collectives": ("paceline", _like("stock", PACELINE_COLLECTIVE="auto"), {}),
    "armed": ("paceline", _like("sync_armed"), _PLANNED),
    "pipelined": ("paceline", _like("pipelined"), {"age": 1}),
    "majority": ("paceline", _like("majority"), {}),
    "local": ("paceline", _like("stock", PACELINE_EXCHANGE="local", PACELINE_SYNC_EVERY=str(SYNC_EVERY)), {}),
    "bf16": ("paceline", _like("stock", PACELINE_CODEC="bf16"), {}),
    "q8": ("paceline", _like("stock", PACELINE_CODEC="q8"), {}),
    "split": ("paceline", _like("split", **_SPLIT), {}),
    "split_armed": ("paceline", _like("split_armed", **_SPLIT), _PLANNED),
    "split_adam": ("paceline", _like("split", **_SPLIT), {"optimizer": "adam"}),
    "zero_adam": ("zero", {}, {"optimizer": "adam"}),
    "fsdp_adam": ("fsdp", {}, {"optimizer": "adam"}),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ranks` ranks of this machine. The model has `layers` square float32 matrices, about `parameters` in all.

    The ranks of each system are started `repeats` times, one system after another. `mapped_bytes`: freed blocks of this
    size and more return to the kernel at once. None: as glibc does it, where the order of allocations in all threads
    decides how much freed memory the process keeps.
    """

    ranks: int = 2
    layers: int = 16
    parameters: float = 100e6
    systems: tuple[str, ...] = tuple(SYSTEMS)
    repeats: int = 1
    mapped_bytes: int | None = 1 << 20

    @property
    def side(self) -> int:
        """Rows of each matrix."""
        return max(1, round(math.sqrt(self.parameters / self.layers)))

    @property
    def bytes(self) -> int:
        """Bytes of the parameters."""
        return ELEMENT_BYTES * self.layers * self.side**2


def find(name: str, settings: Settings) -> System:
    """Return a system of the table."""
    training, env, options = SYSTEMS[name]
    allocator = {} if settings.mapped_bytes is None else {"MALLOC_MMAP_THRESHOLD_": str(settings.mapped_bytes)}
    model = {"layers": settings.layers, "side": settings.side, "bytes": settings.bytes}
    return System(
        name,
        f"{_WORKER}:MemoryWorker",
        {**allocator, **env},
        {"training": f"{_WORKER}:{training}", "optimizer": "sgd", **model, **options},
    )


def multiples(ranks: Sequence[Mapping[str, float]], parameter_bytes: int) -> dict[str, float | None]:
    """Return the table's figures from those of each rank (MemoryWorker), the largest of all ranks.

    "above" and "steady" are peaks without parameters, gradients and optimizer state, "state" is the optimizer's; all
    three in multiples of `parameter_bytes`. The bytes before wrapping contain the parameters.
    """

    def above(rank: Mapping[str, float], peak: str) -> float:
        return (rank[peak] - rank["before"] - rank["state"]) / parameter_bytes - 1

    return {
        "above": max(above(rank, "peak") for rank in ranks),
        "steady": max(above(rank, "steady") for rank in ranks) if all("steady" in rank for rank in ranks) else None,
        "state": max(rank["state"] for rank in ranks) / parameter_bytes,
        "peak_bytes": max(rank["peak"] for rank in ranks),
    }


class MemoryTeam(StepTeam):
    """Ranks whose memory is read."""

    def figures(self, measured: Sequence[StepsMeasured]) -> dict[str, float | None]:
        """Return the multiples."""
        return multiples([one.figures for one in measured], self.system.options["bytes"])


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure each system by itself."""
    check_known(settings.systems, SYSTEMS)

    def take(name: str) -> Turn:
        log(f"starting the ranks of {name}")
        with MemoryTeam(find(name, settings), settings.ranks, Loopback(), log) as team:
            return team.run(STEPS_MADE)

    takes = {name: partial(take, name) for name in settings.systems}
    # No ratios: memory does not depend on the speed of the machine.
    once = replace(limits, turns=min(limits.turns, settings.repeats), settles=False)
    comparison = compare(takes, "above", [], once, log, "memory")
    count = settings.layers * settings.side**2
    title = f"{settings.ranks} ranks, {settings.layers} layers, {count / 1e6:.2f} M float32 parameters"
    facts = {"ranks": settings.ranks, "layers": settings.layers, "parameters": count}
    yield Measured(f"{title}; multiples of their {settings.bytes / 1e6:.0f} MB", comparison, facts)


BENCHMARK = Benchmark(
    "Memory",
    Settings,
    measure,
    "system",
    (
        Column("above parameters and gradients", "above", ".2f"),
        Column("after warm-up", "steady", ".2f"),
        Column("optimizer state", "state", ".2f"),
        Column("peak MB", "peak_bytes", ".0f", 1e6),
    ),
    start_s=0.0,
    quick={"parameters": 1e6},
)
