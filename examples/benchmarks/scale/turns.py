"""The systems in turn, A B C A B C ..., for each number of ranks, until their step times are known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.ratios import Ratio, over
from paceline.examples.benchmarks.harness.stats import FEWEST, Interval, median_interval
from paceline.examples.benchmarks.harness.turns import Limits, steps_per_turn
from paceline.examples.benchmarks.scale.cases import Case, Rested
from paceline.examples.benchmarks.scale.systems import CACHED, ScaleSystem
from paceline.examples.benchmarks.scale.worlds import ScaleRun, ScaleWorld

REST_S = 2.0


@dataclass
class Comparison:
    """One number of ranks: for each system, by name, what it did in each turn, and what its ranks did while at rest."""

    case: Case
    size: int
    runs: dict[str, list[ScaleRun]] = field(default_factory=dict)
    rested: dict[str, list[Rested]] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        """The number of complete turns."""
        return min(len(runs) for runs in self.runs.values())

    def figure(self, name: str, of: Callable[[ScaleRun], float | None]) -> Interval | None:
        """A figure of one system over the turns; None if nobody counts it."""
        found = [value for run in self.runs[name] if (value := of(run)) is not None]
        return median_interval(found) if found else None

    def step_ms(self, name: str) -> Interval:
        """The time of a step."""
        return median_interval([run.step_ms for run in self.runs[name]])

    @property
    def ratios(self) -> list[Ratio]:
        """Every other system over stock Horovod."""
        if CACHED not in self.runs:
            return []
        return [over(name, CACHED) for name in self.runs if name != CACHED]

    def value(self, ratio: Ratio) -> Interval:
        """The ratio, formed within each turn."""
        pairs = zip(self.runs[ratio.system], self.runs[ratio.references[0]], strict=False)
        return median_interval([run.step_ms / base.step_ms for run, base in pairs])

    @property
    def settled(self) -> bool:
        """Whether no step time is wide any more."""
        return self.turns >= FEWEST and not any(self.step_ms(name).wide for name in self.runs)


def compare(
    case: Case,
    systems: Sequence[ScaleSystem],
    size: int,
    hosts: Hosts,
    limits: Limits,
    report: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Run `systems` in turn on `size` ranks of this machine. `report` is told in a line what goes on.

    Raises UserError when a rank ends or hangs; no process is left in any case.
    """
    names = [system.name for system in systems]
    comparison = Comparison(case, size, {name: [] for name in names})

    def tell(text: str) -> None:
        report(f"{size} ranks: {text}")

    with ExitStack() as stack:
        worlds = []
        for system in systems:
            tell(f"starting those of {system.name}")
            worlds.append(stack.enter_context(ScaleWorld(system, case, size, hosts, tell)))
        for world in worlds:
            tell(f"those of {world.system.name} rest")
            comparison.rested[world.system.name] = world.rest(REST_S)
        begin_s = time.monotonic()
        while True:
            for world in worlds:
                comparison.runs[world.system.name].append(world.run(steps_per_turn(world.step_s)))
            elapsed_s = time.monotonic() - begin_s
            tell(f"{_state(comparison)}, {elapsed_s:.0f} s")
            if comparison.settled or comparison.turns >= limits.turns or elapsed_s >= limits.time_s:
                return comparison


def _state(comparison: Comparison) -> str:
    shown = [f"{name} {comparison.step_ms(name).median:.3g} ms" for name in comparison.runs]
    return f"turn {comparison.turns}, {', '.join(shown)}"
