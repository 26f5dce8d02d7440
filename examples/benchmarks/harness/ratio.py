"""Ratios of systems, and medians with bootstrap intervals: how well turns on a shared machine fix a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.examples.benchmarks.harness.turn import Turn

CONFIDENCE = 0.95
RESAMPLES = 4000
SEED = 20170417  # fixed: equal measurements give equal intervals
NARROW = 0.05  # relative to the median: an interval that reaches no further is good enough
FEWEST = 5  # a bootstrap of fewer values looks far more certain than it is


@dataclass(frozen=True)
class Interval:
    """The median of `count` values, and the interval that holds the true median with 95 % confidence."""

    median: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Reach of the interval from the median, relative to it: 0.05 is 5 %."""
        reach = max(self.high - self.median, self.median - self.low)
        return reach / abs(self.median) if self.median else (0.0 if reach == 0 else float("inf"))

    @property
    def wide(self) -> bool:
        """True if the figure is not reliable: too few values, or an interval beyond 5 % of the median."""
        return self.count < FEWEST or self.spread > NARROW


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of `values` and its percentile bootstrap interval. Raises ValueError for no values."""
    if not values:
        raise ValueError("a median needs at least one value")
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(data), size=(RESAMPLES, len(data)))
    medians = np.median(data[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(float(np.median(data)), float(low), float(high), len(data))


@dataclass(frozen=True)
class Ratio:
    """A figure of `system` over the largest of `references`, formed within each turn."""

    name: str
    system: str
    references: tuple[str, ...]
    figure: str

    def value(self, turns: Mapping[str, Sequence[Turn]]) -> Interval:
        """Return the median over turns; the last turn may be incomplete."""
        bases = zip(*(turns[reference] for reference in self.references), strict=False)
        pairs = zip(turns[self.system], bases, strict=False)
        return median_interval([turn[self.figure] / max(base[self.figure] for base in those) for turn, those in pairs])


def over(system: str, reference: str, figure: str, suffix: str = "") -> Ratio:
    """Return the ratio of two systems, called "ddp_over_stock"; the suffix tells figures apart."""
    return Ratio(f"{system}_over_{reference}{suffix}", system, (reference,), figure)


def each_over(names: Sequence[str], references: Sequence[str], figure: str, suffix: str = "") -> list[Ratio]:
    """Return the ratios of all systems but `references` over each of these; of the references alone, over the first."""
    there = [name for name in references if name in names]
    others = [name for name in names if name not in references]
    if not others:
        return [over(name, there[0], figure, suffix) for name in there[1:]]
    return [over(name, reference, figure, suffix) for name in others for reference in there]
