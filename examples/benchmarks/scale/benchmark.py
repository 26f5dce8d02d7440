"""Coordination by the number of ranks: settings, turns, simulation and columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.latencies import UNITS
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured, rounded
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.examples.benchmarks.scale.simulated import Simulation, simulate
from paceline.examples.benchmarks.scale.systems import CACHED, SYSTEMS
from paceline.examples.benchmarks.scale.worker import Rest, Rested, names_of
from paceline.examples.benchmarks.steps.team import StepTeam
from paceline.examples.benchmarks.steps.worker import Measured as StepsMeasured
from paceline.fusion import plan_file
from paceline.fusion.policies import FILE
from paceline.horovod.check import built_from
from paceline.launch.quantities import parse_quantity, size_bytes

REST_S, REST_LIMIT_S = 2.0, 120.0
# Merging treats smaller tensors that come last as values such as a loss, which no plan contains
# (core/fusion/monitor.h).
LEAST_BYTES = 68
_OPERATION = "allreduce."  # Horovod's prefix of a tensor's name
_SHOWN_RANKS = (32, 512, 4096)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Worlds of `ranks` ranks of this machine. A step has `tensors` gradients of `size` bytes in `parts` parts.

    `latency`: one-way latency between simulated hosts, in addition to the hop on loopback.
    """

    ranks: tuple[int, ...] = (2, 4, 8, 16, 32)
    systems: tuple[str, ...] = tuple(SYSTEMS)
    tensors: int = 64
    parts: int = 4
    size: str = "256"
    latency: str | None = None


class ScaleTeam(StepTeam):
    """Ranks that also rest once, before the first turn."""

    rested: Sequence[Rested] = ()

    def get_ready(self) -> None:
        """Bring all ranks to their plan, and let them rest."""
        super().get_ready()
        self.rested = self.order(Rest(REST_S), REST_LIMIT_S)

    def environment(self) -> dict[str, str]:
        """Return the environment of the ranks, with a plan of one message per part if the system plans."""
        options = self.system.options
        if not options["planned"]:
            return super().environment()
        path = Path(self.folder) / "plan.json"
        names = names_of(options["tensors"], options["parts"])
        plan_file.write(path, self.system.name, [[f"{_OPERATION}{name}" for name in part] for part in names])
        return {**super().environment(), "PACELINE_FUSION": f"{FILE}{path}"}

    def figures(self, measured: Sequence[StepsMeasured]) -> dict[str, float | None]:
        """Return figures per step (wall clock and messages of all ranks, the others of rank 0), and figures at rest."""
        first, steps = measured[0], measured[0].steps
        seen = messages_of(measured)
        return {
            **super().figures(measured),
            "cpu_ms": first.figures["cpu_s"] / steps * 1e3,
            "wakeups": first.figures["wakeups"] / steps,
            "background_cpu_ms": first.figures["background_s"] / steps * 1e3,
            "coordination_ms": _least_ms(seen, 0),
            "message_ms": _least_ms(seen, 1),
            "rest_wakeups_per_s": fmean(one.process.wakeups for one in self.rested) / REST_S,
            "rest_background_wakeups_per_s": fmean(one.background.wakeups for one in self.rested) / REST_S,
            "rest_cpu_ms_per_s": fmean(one.process.cpu_s for one in self.rested) / REST_S * 1e3,
        }


def messages_of(measured: Sequence[StepsMeasured]) -> list[list[tuple[tuple[float, float], ...]]]:
    """Return, for each step and each of its messages, all ranks' records of it."""
    steps = list(zip(*(one.messages or () for one in measured), strict=False))
    # The last message of the last step may not be written down yet.
    return [list(zip(*step, strict=False)) for step in steps[:-1] or steps]


def _least_ms(seen: Sequence[Sequence[Sequence[tuple[float, float]]]], place: int) -> float | None:
    # The least of all ranks: the rank that came last to a message did not wait for others.
    found = [sum(min(one[place] for one in ranks) for ranks in step) for step in seen]
    return 1e3 * median(found) if found else None


def find(name: str, settings: Settings) -> System:
    """Return a system for the harness."""
    options = {"tensors": settings.tensors, "parts": settings.parts, "size_bytes": size_bytes(settings.size)}
    options["planned"] = SYSTEMS[name].planned
    setup = "paceline.examples.benchmarks.scale.worker:PartsWorker"
    return System(name, setup, SYSTEMS[name].env, options, forked=True)


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure one world after another; the last result also has what follows from all of them."""
    check_known(settings.systems, SYSTEMS)
    if not 2 <= settings.parts <= settings.tensors or size_bytes(settings.size) < LEAST_BYTES:
        raise UserError("Such a step cannot be measured.", f"Give 2 parts or more, and sizes from {LEAST_BYTES}.")
    if built_from() is None:
        raise UserError("The installed Horovod is not built by Paceline.", "Run `paceline horovod install`.")
    latency_s = 0.0
    if settings.latency is not None:
        latency_s = parse_quantity("latency", settings.latency, UNITS, 'Write a number and us, ms or s: "50us".') / 1e9
    coordination_s: dict[str, dict[int, float]] = {name: {} for name in settings.systems}
    step = f"{settings.tensors} tensors of {settings.size} bytes in {settings.parts} parts"
    for ranks in settings.ranks:
        with ExitStack() as stack:
            teams = {}
            for name in settings.systems:
                log(f"{ranks} ranks: starting those of {name}")
                teams[name] = stack.enter_context(ScaleTeam(find(name, settings), ranks, Loopback(), log))
            takes = {name: team.take for name, team in teams.items()}
            ratios = each_over(list(takes), [CACHED], "step_ms")
            comparison = compare(takes, "step_ms", ratios, limits, log, f"{ranks} ranks")
        for name, by_ranks in coordination_s.items():
            found = comparison.interval(name, "coordination_ms")
            by_ranks |= {ranks: found.median / 1e3} if found is not None and found.median > 0 else {}
        facts: dict[str, Any] = {"ranks": ranks, "parts": settings.parts, "latency": settings.latency}
        measured = Measured(f"{ranks} ranks on this machine, per step of {step}", comparison, facts)
        if ranks == settings.ranks[-1]:
            simulated = _simulated(settings, coordination_s, latency_s)
            facts["simulated"] = {name: _as_json(one) for name, one in simulated.items()}
            measured.notes = [_note(name, one) for name, one in simulated.items()]
        yield measured


def _simulated(
    settings: Settings, coordination_s: Mapping[str, Mapping[int, float]], latency_s: float
) -> dict[str, Simulation]:
    cores = len(os.sched_getaffinity(0))
    found = {
        name: simulate(SYSTEMS[name], settings.parts, by_ranks, cores, latency_s)
        for name, by_ranks in coordination_s.items()
    }
    return {name: one for name, one in found.items() if one is not None}


def _as_json(found: Simulation) -> dict[str, Any]:
    def by_ranks_ms(times_s: Mapping[int, float]) -> dict[str, float]:
        return {str(ranks): rounded(seconds * 1e3) for ranks, seconds in times_s.items()}

    return {
        "fixed_us": rounded(found.constants.fixed_s * 1e6),
        "hop_us": rounded(found.constants.hop_s * 1e6),
        "message_us": rounded(found.constants.message_s * 1e6),
        "fit_error": rounded(found.error),
        "fitted_ms": by_ranks_ms(found.here_s),
        "simulated_ms": by_ranks_ms(found.hosts_s),
    }


def _note(name: str, found: Simulation) -> str:
    constants = found.constants
    beyond = ", ".join(f"{found.hosts_s[ranks] * 1e3:.3g} ms among {ranks}" for ranks in _SHOWN_RANKS)
    return (
        f"{name}: a coordination takes {constants.fixed_s * 1e6:.0f} us, {constants.hop_s * 1e6:.0f} us a hop and"
        f" {constants.message_s * 1e6:.0f} us a message, within {found.error:.0%}; simulated, a processor for each"
        f" rank: {beyond} ranks"
    )


BENCHMARK = Benchmark(
    "Coordination",
    Settings,
    measure,
    "system",
    (
        Column("step ms", "step_ms", ".2f"),
        Column("coordination ms", "coordination_ms", ".2f"),
        Column("messages ms", "message_ms", ".2f"),
        Column("thread CPU ms", "background_cpu_ms", ".2f"),
        Column("CPU ms", "cpu_ms", ".2f"),
        Column("rounds", "coordination_rounds"),
        Column("messages", "messages"),
        Column("at rest: wake-ups/s", "rest_wakeups_per_s", ".0f"),
        Column("thread's", "rest_background_wakeups_per_s", ".0f"),
        Column("CPU ms/s", "rest_cpu_ms_per_s"),
    ),
    start_s=30.0,
)
