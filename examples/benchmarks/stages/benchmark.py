"""Schedules of pipeline stages: settings, systems, turns, ratios and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import fmean

import msgspec

from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.ratio import Ratio, over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare, count_for
from paceline.examples.benchmarks.stages.models import MODELS, SLEEPING, Case
from paceline.examples.benchmarks.stages.worker import Train, Trained
from paceline.stages import schedules
from paceline.stages.costs import costs

PACELINE, TORCH = "paceline", "torch"
SYNCHRONOUS, LATE = ("gpipe", "1f1b"), ("pipemare", "pipemare_eager")
# System -> library and schedule. Each library has separate ranks, which run all of its schedules.
SYSTEMS = {name: (PACELINE, name) for name in schedules.SCHEDULES}
SYSTEMS |= {f"{TORCH}_{name}": (TORCH, name) for name in SYNCHRONOUS}
_HERE = "paceline.examples.benchmarks.stages"
LIBRARIES = {
    PACELINE: System(PACELINE, f"{_HERE}.ours:worker"),
    TORCH: System(TORCH, f"{_HERE}.theirs:worker"),
}
TURN_S = 2.0  # measured part of one system's part of a turn
FEWEST_STEPS, MOST_STEPS = 2, 100
TRAIN_LIMIT_S = 300.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`stages` ranks of this machine. A pass of a stage that sleeps takes `forward_ms` or `backward_ms`."""

    stages: int = 4
    microbatches: tuple[int, ...] = (4,)
    models: tuple[str, ...] = (SLEEPING,)
    systems: tuple[str, ...] = tuple(SYSTEMS)
    forward_ms: float = 20.0
    backward_ms: float = 20.0


class StageTeam(Team):
    """The ranks of one library. `take` is one turn of one of its schedules."""

    _steps: dict[tuple[Case, str], int]

    def get_ready(self) -> None:
        """Begin with few steps."""
        self._steps = {}

    def take(self, case: Case, schedule: str) -> Turn:
        """Let the ranks train for TURN_S."""
        steps = self._steps.get((case, schedule), FEWEST_STEPS)
        stages: list[Trained] = self.ask(Train(case, schedule, steps), TRAIN_LIMIT_S)
        throughput = stages[0].microbatches / fmean(one.wall_s for one in stages)
        self._steps[case, schedule] = count_for(TURN_S, case.microbatches / throughput, FEWEST_STEPS, MOST_STEPS)
        model = costs(schedules.make(schedule, case.stages, case.microbatches))
        figures = {
            "throughput": throughput,
            "utilisation": fmean(one.busy_s / one.wall_s for one in stages),
            "bound_share": throughput * (case.forward_s + case.backward_s) if case.model == SLEEPING else None,
            "passes_ms": fmean(one.passes_s for one in stages) * 1e3,
            "cpu_ms": fmean(one.cpu_s / one.microbatches for one in stages) * 1e3,
        }
        details = {
            "utilisation_model": model.utilisation,
            "weight_copies": [one.weight_copies for one in stages],
            "weight_copies_model": list(model.weight_copies),
            "activations": [one.activations for one in stages],
            "activations_model": list(model.activations),
            "loss": stages[-1].loss,
        }
        return Turn(figures, details)


def ratios(names: Sequence[str]) -> list[Ratio]:
    """Return the ratios of throughput: delayed schedules over synchronous ones, and synchronous ones over PyTorch's."""
    pairs = [(late, reference) for late in LATE for reference in SYNCHRONOUS]
    pairs += [(name, f"{TORCH}_{name}") for name in SYNCHRONOUS]
    return [over(*pair, "throughput") for pair in pairs if set(pair) <= set(names)]


def refusal(name: str, case: Case) -> str:
    """Return the reason why a system cannot train a case; "" if it can."""
    if name == f"{TORCH}_1f1b" and case.microbatches < case.stages:
        return f"torch.distributed.pipelining's 1F1B takes {case.stages} micro-batches or more for {case.stages} stages"
    return ""


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure each model with each number of micro-batches."""
    check_known(settings.systems, SYSTEMS)
    check_known(settings.models, MODELS)
    times_s = settings.forward_ms / 1e3, settings.backward_ms / 1e3
    cases = [
        Case(model, settings.stages, count, *times_s) for model in settings.models for count in settings.microbatches
    ]
    with ExitStack() as stack:
        teams = {}
        for library in dict.fromkeys(SYSTEMS[name][0] for name in settings.systems):
            log(f"starting the ranks of {library}")
            teams[library] = stack.enter_context(StageTeam(LIBRARIES[library], settings.stages, Loopback()))
        for case in cases:
            refused = {name: reason for name in settings.systems if (reason := refusal(name, case))}
            able = {name: SYSTEMS[name] for name in settings.systems if name not in refused}
            what = f"{case.model}, {case.microbatches} micro-batches"
            takes = {name: partial(teams[library].take, case, schedule) for name, (library, schedule) in able.items()}
            comparison = compare(takes, "throughput", ratios(list(able)), limits, log, what)
            facts = {"model": case.model, "stages": case.stages, "microbatches": case.microbatches}
            passes = f", {settings.forward_ms:g} + {settings.backward_ms:g} ms" if case.model == SLEEPING else ""
            title = f"{case.model}: {case.stages} stages, {case.microbatches} micro-batches{passes}"
            yield Measured(title, comparison, facts, (), refused)


BENCHMARK = Benchmark(
    "Pipeline stages",
    Settings,
    measure,
    "schedule",
    (
        Column("micro-batches/s", "throughput", ".4g"),
        Column("utilisation", "utilisation", ".3f"),
        Column("of the schedule", "utilisation_model", ".3f"),
        Column("of the bound", "bound_share", ".3f"),
        Column("passes ms", "passes_ms", ".4g"),
        Column("CPU ms", "cpu_ms", ".3g"),
        Column("weight copies", "weight_copies"),
        Column("activations", "activations"),
    ),
    start_s=15.0,
)
