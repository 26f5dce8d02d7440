"""The systems in turn, A B C A B C ..., until their ratios are known well enough.

The machine may be shared: what it does besides changes from minute to minute, so times of different systems compare
only within a turn, where they lie seconds apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.merging import Plan
from paceline.examples.benchmarks.harness.ratios import Ratio, over
from paceline.examples.benchmarks.harness.stats import FEWEST, Interval, median_interval
from paceline.examples.benchmarks.harness.systems import ALONE, System
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.team_run import TeamRun
from paceline.examples.benchmarks.networks import models

TURN_S = 1.5  # what one system's part of a turn should take
FEWEST_STEPS, MOST_STEPS = 3, 40
SHOWN = 2  # ratios that fit on the line that tells what goes on


@dataclass(frozen=True)
class Limits:
    """When to stop at the latest: seconds of measuring per model (starting the ranks is not counted), and turns."""

    time_s: float = 120.0
    turns: int = 200


@dataclass
class Comparison:
    """One model's turns: for each system, by name, what it did in each turn.

    `wanted` are the ratios to form; without any, every system that communicates is compared with the first that does.
    """

    model: models.Model
    size: int
    runs: dict[str, list[TeamRun]] = field(default_factory=dict)
    wanted: Sequence[Ratio] = ()

    @property
    def turns(self) -> int:
        """The number of complete turns."""
        return min(len(runs) for runs in self.runs.values())

    @property
    def ratios(self) -> list[Ratio]:
        """The ratios."""
        if self.wanted:
            return list(self.wanted)
        communicating = [name for name in self.runs if name != ALONE]
        return [over(other, communicating[0]) for other in communicating[1:]]

    def value(self, ratio: Ratio) -> Interval:
        """The ratio, formed within each turn."""
        bases = zip(*(self.runs[reference] for reference in ratio.references), strict=False)
        pairs = zip(self.runs[ratio.system], bases, strict=False)
        return median_interval([run.step_ms / max(base.step_ms for base in slowest) for run, slowest in pairs])

    def plans(self, system: str) -> list[Plan]:
        """The plans that were in force at the end of the turns; none for a system that does not merge by plan."""
        return [run.plan for run in self.runs[system] if run.plan is not None]

    def predicted_over_measured(self, system: str) -> Interval | None:
        """The step that the plan in force promised over the step of the same turn; None without promises."""
        promised = [(run.plan.step_s, run.step_ms) for run in self.runs[system] if run.plan]
        found = [1e3 * step_s / step_ms for step_s, step_ms in promised if step_s is not None]
        return median_interval(found) if found else None

    def figure(self, system: str, of: Callable[[TeamRun], float]) -> Interval:
        """A figure of one system over the turns."""
        return median_interval([of(run) for run in self.runs[system]])

    @property
    def settled(self) -> bool:
        """Whether no ratio is wide any more; without any ratio, whether no step time is."""
        if self.turns < FEWEST:
            return False
        intervals = [self.value(ratio) for ratio in self.ratios] or [
            self.figure(name, lambda run: run.step_ms) for name in self.runs
        ]
        return not any(interval.wide for interval in intervals)


def steps_per_turn(step_s: float) -> int:
    """How many steps of `step_s` seconds make up a turn."""
    return max(FEWEST_STEPS, min(MOST_STEPS, round(TURN_S / step_s)))


def compare(
    model: str,
    systems: Sequence[System],
    size: int,
    hosts: Hosts,
    limits: Limits,
    report: Callable[[str], None] = lambda text: None,
    wanted: Sequence[Ratio] = (),
) -> Comparison:
    """Run `systems` in turn on `size` ranks. `report` is told in a line what goes on; `wanted` are the ratios that
    decide when they are known well enough (`Comparison`).

    Raises UserError when a rank ends or hangs; no process is left in any case.
    """
    comparison = Comparison(models.find(model), size, {system.name: [] for system in systems}, wanted)

    def tell(text: str) -> None:
        report(f"{model}: {text}")

    with ExitStack() as stack:
        teams = []
        for system in systems:
            tell(f"starting the ranks of {system.name}")
            teams.append(stack.enter_context(Team(system, model, size, hosts, tell)))
        begin_s = time.monotonic()
        while True:
            for team in teams:
                # Gradients that travel in later steps are on their way at both ends of a turn; more steps even it out.
                steps = steps_per_turn(team.step_s) * (1 + team.system.age)
                comparison.runs[team.system.name].append(team.run(steps))
            elapsed_s = time.monotonic() - begin_s
            tell(f"{_state(comparison)}, {elapsed_s:.0f} s")
            if comparison.settled or comparison.turns >= limits.turns or elapsed_s >= limits.time_s:
                return comparison


def _state(comparison: Comparison) -> str:
    parts = [f"turn {comparison.turns}"]
    for ratio in comparison.ratios[:SHOWN]:
        value = comparison.value(ratio)
        parts.append(f"{ratio.shown} {value.median:.3f} [{value.low:.3f}, {value.high:.3f}]")
    return ", ".join(parts)
