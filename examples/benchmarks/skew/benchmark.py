"""The eager-SGD paper's micro-benchmark: latencies of full and partial allreduces when rank r is r skews late.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7.1 and figure 9.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import fmean

import msgspec

from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured, rounded
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.examples.benchmarks.skew import model
from paceline.examples.benchmarks.skew.worker import Order, Sample

CALLS = 4  # of each system in a turn, with skew and without
CALL_LIMIT_S = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ranks` ranks of this machine, each `skew_ms` later than the one before; `cycle_ms` is HOROVOD_CYCLE_TIME."""

    ranks: int = 8
    skew_ms: float = 100.0
    cycle_ms: float = 1.0
    sizes_bytes: tuple[int, ...] = (64,)
    systems: tuple[str, ...] = model.SYSTEMS


def take(team: Team, settings: Settings, size_bytes: int, system: str) -> Turn:
    """Return latencies of one system without and with skew, and its wait in multiples of the skew."""
    order = Order(system, size_bytes, settings.skew_ms / 1e3, CALLS)
    limit_s = CALL_LIMIT_S + CALLS * settings.ranks * settings.skew_ms / 1e3
    ranks: list[list[tuple[Sample, Sample]]] = team.ask(order, limit_s)
    even = [sample[0] for rank in ranks for sample in rank]
    late = [sample[1] for rank in ranks for sample in rank]
    counts = [sample[1][2] for sample in ranks[0]]
    assert all([sample[1][2] for sample in rank] == counts for rank in ranks), "ranks saw different rounds of a call"
    even_ms, late_ms = (fmean(one[0] for one in samples) * 1e3 for samples in (even, late))
    figures = {
        "late_ms": late_ms,
        "even_ms": even_ms,
        "fresh": fmean(counts),
        "wait_over_skew": (late_ms - even_ms) / settings.skew_ms,
        "model_at_fresh": model.with_transfer(counts, settings.ranks, even_ms / settings.skew_ms),
        "lateness_ms": fmean(one[1] for one in even + late) * 1e3,
    }
    details = {
        "fresh_model": rounded(model.expected_fresh(system, settings.ranks)),
        "wait_model": rounded(model.expected_wait(system, settings.ranks)),
    }
    return Turn(figures, details)


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure each size."""
    check_known(settings.systems, model.SYSTEMS)
    env = {
        "HOROVOD_CYCLE_TIME": f"{settings.cycle_ms:g}",
        "PACELINE_EXCHANGE": "sync",
        "PACELINE_FUSION": "threshold",
    }
    world = System("skew", "paceline.examples.benchmarks.skew.worker:SkewWorker", env)
    log(f"starting {settings.ranks} ranks")
    with Team(world, settings.ranks, Loopback()) as team:
        for size_bytes in settings.sizes_bytes:
            takes = {name: partial(take, team, settings, size_bytes, name) for name in settings.systems}
            ratios = each_over(settings.systems, [model.SYNC], "late_ms")
            comparison = compare(takes, "late_ms", ratios, limits, log, f"{size_bytes} bytes")
            facts = {"ranks": settings.ranks, "size_bytes": size_bytes, "skew_ms": settings.skew_ms}
            title = f"{size_bytes} bytes: {settings.ranks} ranks, rank r comes r x {settings.skew_ms:g} ms late"
            yield Measured(title, comparison, facts)


BENCHMARK = Benchmark(
    "Late ranks",
    Settings,
    measure,
    "system",
    (
        Column("skewed ms", "late_ms", ".2f"),
        Column("even ms", "even_ms", ".2f"),
        Column("in time", "fresh"),
        Column("model", "fresh_model"),
        Column("wait / skew", "wait_over_skew", ".2f"),
        Column("model", "wait_model", ".2f"),
        Column("at in time", "model_at_fresh", ".2f"),
        Column("sleeps late ms", "lateness_ms", ".2f"),
    ),
    start_s=15.0,
)
