"""The systems in turn, A B C A B C ..., until their ratios are known precisely enough.

The machine may be shared: its speed changes from minute to minute, so times of different systems are comparable only
within a turn, where they are seconds apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.examples.benchmarks.harness.ratio import Ratio
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.launch.intervals import FEWEST, Interval, median_interval

SHOWN = 2  # ratios on the line of progress
Log = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """Limits of a measurement: seconds per result (starting the ranks is not counted), and turns.

    `settles`: measuring ends earlier when all ratios are narrow.
    """

    time_s: float = 120.0
    turns: int = 200
    settles: bool = True


@dataclass
class Comparison:
    """All turns of the systems, by name. `figure` is the main figure; `ratios` are formed within turns."""

    turns: dict[str, list[Turn]]
    figure: str
    ratios: Sequence[Ratio] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def complete(self) -> int:
        """Number of complete turns."""
        return min(len(turns) for turns in self.turns.values())

    def value(self, ratio: Ratio) -> Interval:
        """Return a ratio over all turns."""
        return ratio.value(self.turns)

    def interval(self, system: str, figure: str) -> Interval | None:
        """Return a figure of one system over its turns; None if the system does not count it."""
        values = [value for turn in self.turns[system] if (value := turn.figures.get(figure)) is not None]
        return median_interval(values) if values else None

    @property
    def settled(self) -> bool:
        """True if all ratios are narrow; without ratios, if each system's figure is."""
        if self.complete < FEWEST or not self.limits.settles:
            return False
        found = [self.value(ratio) for ratio in self.ratios]
        alone = [self.interval(name, self.figure) for name in self.turns] if not found else []
        return not any(one.wide for one in (*found, *alone) if one is not None)

    @property
    def progress(self) -> str:
        """Return a line about the turns so far."""
        parts = [f"turn {self.complete}"]
        for ratio in self.ratios[:SHOWN]:
            value = self.value(ratio)
            parts.append(f"{shown(ratio.name)} {value.median:.3f} [{value.low:.3f}, {value.high:.3f}]")
        return ", ".join(parts)


def compare(
    takes: Mapping[str, Callable[[], Turn]],
    figure: str,
    ratios: Sequence[Ratio],
    limits: Limits,
    log: Log = lambda text: None,
    what: str = "",
) -> Comparison:
    """Let each system take its part of a turn, repeatedly, until the ratios are narrow or a limit is reached.

    `takes` measures one part of a turn of each system. `log` gets a line about each turn, with `what`.
    """
    comparison = Comparison({name: [] for name in takes}, figure, ratios, limits)
    begin_s = time.monotonic()
    while True:
        for name, take in takes.items():
            comparison.turns[name].append(take())
        elapsed_s = time.monotonic() - begin_s
        log(f"{what}: {comparison.progress}, {elapsed_s:.0f} s")
        if comparison.settled or comparison.complete >= limits.turns or elapsed_s >= limits.time_s:
            return comparison


def count_for(time_s: float, each_s: float, fewest: int, most: int) -> int:
    """Return the number of steps or calls of `each_s` seconds that fill a part of a turn of `time_s`, within bounds."""
    return max(fewest, min(most, round(time_s / each_s)))


def shown(name: str) -> str:
    """Return a ratio's name in readable form: "ddp / stock"."""
    return name.replace("_over_", " / ")
