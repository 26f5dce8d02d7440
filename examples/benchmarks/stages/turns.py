"""The systems in turn, A B C A B C ..., until their ratios are known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.stats import FEWEST, Interval, median_interval
from paceline.examples.benchmarks.harness.turns import Limits
from paceline.examples.benchmarks.stages import systems
from paceline.examples.benchmarks.stages.cases import Case
from paceline.examples.benchmarks.stages.systems import StageSystem
from paceline.examples.benchmarks.stages.worlds import StagesRun, World

TURN_S = 2.0  # what one system's measured part of a turn should take
FEWEST_STEPS, MOST_STEPS = 2, 100


@dataclass
class Comparison:
    """One case: for each system, by name, what it did in each turn. `skipped`: systems, and why they cannot."""

    case: Case
    systems: Sequence[StageSystem]
    skipped: dict[str, str] = field(default_factory=dict)
    runs: dict[str, list[StagesRun]] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """The number of complete turns."""
        return min(len(runs) for runs in self.runs.values())

    def figure(self, name: str, of: Callable[[StagesRun], float]) -> Interval:
        """A figure of one system over the turns."""
        return median_interval([of(run) for run in self.runs[name]])

    def ratio(self, name: str, reference: str) -> Interval:
        """How many times the throughput of another system within the same turn."""
        pairs = zip(self.runs[name], self.runs[reference], strict=False)
        return median_interval([one.throughput / other.throughput for one, other in pairs])

    @property
    def ratios(self) -> list[tuple[str, str]]:
        """Which systems are compared."""
        return systems.ratios(list(self.runs))

    @property
    def settled(self) -> bool:
        """Whether no ratio is wide any more; without any ratio, whether no throughput is."""
        if self.turns < FEWEST:
            return False
        found = [self.ratio(*pair) for pair in self.ratios] or [
            self.figure(name, lambda run: run.throughput) for name in self.runs
        ]
        return not any(interval.wide for interval in found)


def steps_per_turn(step_s: float) -> int:
    """How many steps of `step_s` seconds make up a turn."""
    return max(FEWEST_STEPS, min(MOST_STEPS, round(TURN_S / step_s)))


def compare(
    cases: Sequence[Case],
    measured: Sequence[StageSystem],
    hosts: Hosts,
    limits: Limits,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Comparison]:
    """Run the systems `measured` in turn on each of `cases`, which have equally many stages; `limits` are of each case.
    `report` is told in a line what goes on.

    Raises UserError when a rank ends or hangs; no process is left in any case.
    """
    with ExitStack() as stack:
        worlds = {}
        for library in dict.fromkeys(system.library for system in measured):
            report(f"starting the ranks of {library}")
            worlds[library] = stack.enter_context(World(library, cases[0].stages, hosts))
        for case in cases:
            yield _compare(case, measured, worlds, limits, report)


def _compare(
    case: Case,
    measured: Sequence[StageSystem],
    worlds: dict[str, World],
    limits: Limits,
    report: Callable[[str], None],
) -> Comparison:
    refusals = {system.name: system.refusal(case.stages, case.microbatches) for system in measured}
    able = [system for system in measured if not refusals[system.name]]
    skipped = {name: reason for name, reason in refusals.items() if reason}
    comparison = Comparison(case, able, skipped, {system.name: [] for system in able})
    steps = {system.name: FEWEST_STEPS for system in able}
    begin_s = time.monotonic()
    while able:
        for system in able:
            run = worlds[system.library].run(case, system.schedule, steps[system.name])
            steps[system.name] = steps_per_turn(case.microbatches / run.throughput)
            comparison.runs[system.name].append(run)
        elapsed_s = time.monotonic() - begin_s
        report(f"{case.model}, {case.microbatches} micro-batches: {_state(comparison)}, {elapsed_s:.0f} s")
        if comparison.settled or comparison.turns >= limits.turns or elapsed_s >= limits.time_s:
            break
    return comparison


def _state(comparison: Comparison) -> str:
    shown = [f"{name} {comparison.figure(name, lambda run: run.throughput).median:.3g}/s" for name in comparison.runs]
    return f"turn {comparison.turns}, {', '.join(shown)}"
