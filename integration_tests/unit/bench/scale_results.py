"""Turns of `python -m examples.benchmarks scale` whose figures are made up."""

from __future__ import annotations

from typing import Any

from paceline.examples.benchmarks.scale import report
from paceline.examples.benchmarks.scale.cases import Case, Rested, Stepped
from paceline.examples.benchmarks.scale.prediction import Constants, time_s
from paceline.examples.benchmarks.scale.systems import SYSTEMS, find
from paceline.examples.benchmarks.scale.threads import Used
from paceline.examples.benchmarks.scale.turns import Comparison
from paceline.examples.benchmarks.scale.worlds import ScaleRun

CASE = Case(tensors=10, parts=4, size_bytes=256)
CORES = 2
STEPS = 5
MESSAGE_S = 2e-4
CONSTANTS = {
    "uncached": Constants(1e-3, 4e-5, 2e-5),
    "cached": Constants(5e-4, 2e-5, 1e-5),
    "events": Constants(0.0, 2e-5, 1e-5),
    "armed": Constants(0.0, 2e-5, 1e-5),
}


def coordination_s(name: str, size: int) -> float:
    """Of a step, on two cores, with CONSTANTS."""
    system = find(name)
    return system.coordinations(CASE.parts) * time_s(system.way(size), CONSTANTS[name], cores=CORES)


def stepped(name: str, rank: int, size: int, hooks: bool = True) -> Stepped:
    """Rank 0 is the last to every message; the others have waited a millisecond more. The last rank lacks one."""
    count = STEPS * CASE.parts
    each_s = coordination_s(name, size) / CASE.parts
    step = ((each_s + (1e-3 if rank else 0.0), MESSAGE_S),) * CASE.parts
    messages = (*[step] * (STEPS - 1), step[: CASE.parts - (rank == size - 1)])
    counters = {"coordination_rounds": 5 * STEPS, "messages": count, "tensors": 50, "bytes": 1000}
    wall_s = STEPS * (coordination_s(name, size) + CASE.parts * MESSAGE_S)
    return Stepped(
        STEPS,
        wall_s,
        Used(0.01, 100),
        Used(0.005, 50),
        counters if hooks else None,
        messages if hooks else None,
    )


def compared(size: int, hooks: bool = True, turns: int = 5) -> Comparison:
    """All systems, or without hook points of Horovod's those that it has."""
    names = [name for name, system in SYSTEMS.items() if hooks or not system.ours]
    comparison = Comparison(CASE, size)
    comparison.runs = {
        name: [ScaleRun([stepped(name, rank, size, hooks) for rank in range(size)])] * turns for name in names
    }
    comparison.rested = {name: [Rested(2.0, Used(0.02, 400), Used(0.01, 4))] * size for name in names}
    return comparison


def results(*sizes: int, hooks: bool = True) -> list[dict[str, Any]]:
    """A result for each number of ranks."""
    return [report.as_json(compared(size, hooks), {}, {"cores": CORES}, "the command") for size in sizes]


def last(found: list[dict[str, Any]], latency: str | None = None, latency_s: float = 0.0) -> dict[str, Any]:
    """What follows from them."""
    return report.closing(CASE, found, latency, latency_s, {"cores": CORES}, "the command")
