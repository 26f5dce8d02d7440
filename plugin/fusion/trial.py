"""Comparison of a plan with Horovod's own merging: windows of steps under each in turn, and a sign test.

Step times are those of one rank: ranks of a process set wait for each other in every step.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

# Steps of one window, whose median is used.
WINDOW_STEPS = 5
# Significance level of the sign test: six pairs of six, eight of nine, nine of ten. The test runs after every pair, so
# that the error rate of the whole trial is a few times as high.
SIGNIFICANCE = 0.05
# Minimum expected saving of a plan to be tried, as a share of a step.
WORTH_TRYING = 0.01


@dataclass
class Trial:
    """Pairs of windows, of the plan and of Horovod's own merging; the order within a pair alternates.

    `most_steps`: limit for all windows together. Times in seconds.
    """

    most_steps: int
    planned_s: list[float] = field(default_factory=list)
    stock_s: list[float] = field(default_factory=list)
    steps: int = 0

    @property
    def with_plan(self) -> bool:
        """True if the next window is the plan's."""
        windows = len(self.planned_s) + len(self.stock_s)
        return windows % 4 in (0, 3)

    def add(self, step_s: float, steps: int) -> None:
        """Add the window that has ended: the median of its steps, and their number."""
        (self.planned_s if self.with_plan else self.stock_s).append(step_s)
        self.steps += steps

    @property
    def pairs(self) -> int:
        """Number of complete pairs."""
        return min(len(self.planned_s), len(self.stock_s))

    @property
    def wins(self) -> int:
        """Number of pairs in which the plan was faster."""
        return sum(planned < stock for planned, stock in zip(self.planned_s, self.stock_s, strict=False))

    @property
    def ratio(self) -> float:
        """Median step of the plan's windows divided by that of Horovod's."""
        return statistics.median(self.planned_s) / statistics.median(self.stock_s)

    @property
    def decided(self) -> bool:
        """True if the lead of either is significant."""
        lead = max(self.wins, self.pairs - self.wins)
        chance = 2 * sum(math.comb(self.pairs, n) for n in range(lead, self.pairs + 1)) / 2**self.pairs
        return len(self.planned_s) == len(self.stock_s) and chance <= SIGNIFICANCE

    @property
    def over(self) -> bool:
        """True if there is a verdict: a significant lead, or no steps left for another pair."""
        if len(self.planned_s) != len(self.stock_s) or not self.pairs:
            return False
        return self.decided or self.steps * (self.pairs + 1) / self.pairs > self.most_steps

    @property
    def plan_stays(self) -> bool:
        """The verdict; without a significant lead, the smaller median wins."""
        return self.wins * 2 > self.pairs if self.decided else self.ratio < 1

    def __str__(self) -> str:
        by = f"{abs(1 - self.ratio):.1%}"
        pairs = f"{self.wins} of {self.pairs} pairs of windows"
        if self.decided:
            found = f"steps took {by} {'less' if self.plan_stays else 'more'} with the plan, which was ahead in {pairs}"
        else:
            found = f"no difference that is sure in {self.steps} steps, the plan ahead in {pairs}"
        stays = "the plan stays" if self.plan_stays else "Horovod's own merging stays"
        return f"tried: {found}; {stays}"
