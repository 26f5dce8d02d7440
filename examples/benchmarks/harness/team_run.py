"""What one turn of a system gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.examples.benchmarks.harness.assignment import Measured
from paceline.examples.benchmarks.harness.hosts import Traffic
from paceline.examples.benchmarks.harness.merging import Plan


@dataclass(frozen=True)
class TeamRun:
    """One turn of a system: what each rank measured over `steps` steps, and what each host's link carried per step."""

    steps: int
    ranks: list[Measured]
    traffic: list[Traffic] | None

    @property
    def step_ms(self) -> float:
        """Wall clock per step, mean over ranks."""
        return self._mean([rank.wall_s for rank in self.ranks]) * 1e3

    @property
    def cpu_ms(self) -> float:
        """Processor time per step and rank."""
        return self._mean([rank.cpu_s for rank in self.ranks]) * 1e3

    @property
    def wakeups(self) -> float:
        """Voluntary context switches per step and rank."""
        return self._mean([rank.wakeups for rank in self.ranks])

    def counted(self, name: str) -> float | None:
        """A counter of rank 0, per step; None if the system does not count it."""
        counters = self.ranks[0].counters
        return None if counters is None else counters[name] / self.steps

    @property
    def plan(self) -> Plan | None:
        """What was merged by at the end of the turn, as rank 0 reports it; the same plan is in force everywhere."""
        merging = self.ranks[0].merging
        return None if merging is None else merging.plan

    def _mean(self, values: Sequence[float]) -> float:
        return sum(values) / len(values) / self.steps


def per_step(before: list[Traffic] | None, after: list[Traffic] | None, steps: int) -> list[Traffic] | None:
    """What each host's link carried per step between two readings; None where there are no links."""
    if before is None or after is None:
        return None
    return [
        Traffic((end.sent_bytes - begin.sent_bytes) // steps, (end.received_bytes - begin.received_bytes) // steps)
        for begin, end in zip(before, after, strict=True)
    ]
