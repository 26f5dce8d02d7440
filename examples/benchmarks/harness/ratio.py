"""Ratios of systems, formed within turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.examples.benchmarks.harness.turn import Turn
from paceline.launch.intervals import Interval, median_interval


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
    """Return the ratio of two systems, such as "ddp_over_stock"; the suffix distinguishes figures."""
    return Ratio(f"{system}_over_{reference}{suffix}", system, (reference,), figure)


def each_over(names: Sequence[str], references: Sequence[str], figure: str, suffix: str = "") -> list[Ratio]:
    """Return the ratios of all other systems over each of `references`; of references only, over the first."""
    there = [name for name in references if name in names]
    others = [name for name in names if name not in references]
    if not others:
        return [over(name, there[0], figure, suffix) for name in there[1:]]
    return [over(name, reference, figure, suffix) for name in others for reference in there]
