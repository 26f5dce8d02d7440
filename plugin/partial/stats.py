"""hvd.exchange_stats(): how often this rank came in time for partial rounds, and how late it was otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.native.library import loaded, read

STEADY, RANDOM = "steadily", "at random"
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class RankLateness:
    """Lateness of one rank over all names.

    It made so many `calls`; `late` of them came after the round that they were for, `late_ms` after that round was
    ready, in sum. `missed` rounds were sent without it.
    """

    calls: int
    missed: int
    late: int
    late_ms: float

    @property
    def share(self) -> float:
        """Share of its calls that were late."""
        return self.late / self.calls if self.calls else 0.0

    @property
    def mean_ms(self) -> float:
        """Mean delay of a late call in ms."""
        return self.late_ms / self.late if self.late else 0.0

    def __sub__(self, earlier: RankLateness) -> RankLateness:
        pairs = zip(vars(self).values(), vars(earlier).values(), strict=True)
        return RankLateness(*(now - before for now, before in pairs))


@dataclass(frozen=True)
class ExchangeStats:
    """Totals of this rank over all names of a process set.

    `names`: tensors that are exchanged partially. `rounds` were performed. `on_time` calls were in the round they asked
    for, `late` ones not. `missed` rounds had no fresh contribution of this rank. `carried` contributions left with a
    later round. `lags[n]` calls came n rounds late; the last element: so many or more. `ranks`: lateness of each rank,
    on the first rank of the process set; empty on others.
    """

    names: int
    rounds: int
    on_time: int
    late: int
    missed: int
    carried: int
    lags: tuple[int, ...]
    ranks: tuple[RankLateness, ...] = ()

    @property
    def latest(self) -> tuple[int, str] | None:
        """The rank whose calls came latest in sum, and how: "steadily", most of its calls, or "at random".

        None where no call was late, and on ranks that do not know.
        """
        worst = max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].late_ms, default=None)
        if worst is None or not self.ranks[worst].late:
            return None
        return worst, STEADY if self.ranks[worst].share > 0.5 else RANDOM

    @property
    def in_time(self) -> float:
        """The share of calls that were in the round they asked for; 1 before the first call."""
        calls = self.on_time + self.late
        return self.on_time / calls if calls else 1.0

    @property
    def most_late(self) -> int:
        """How many rounds late the latest call was."""
        return max((lag for lag, count in enumerate(self.lags) if count), default=0)

    def since(self, earlier: ExchangeStats) -> ExchangeStats:
        """What was added after `earlier`; `names` stays the number of all."""
        return ExchangeStats(
            self.names,
            self.rounds - earlier.rounds,
            self.on_time - earlier.on_time,
            self.late - earlier.late,
            self.missed - earlier.missed,
            self.carried - earlier.carried,
            tuple(now - before for now, before in zip(self.lags, earlier.lags, strict=True)),
            tuple(now - before for now, before in zip(self.ranks, earlier.ranks)) if earlier.ranks else self.ranks,
        )

    def __str__(self) -> str:
        if not self.names:
            return "no tensor is exchanged partially"
        text = (
            f"{self.rounds} rounds of {self.names} tensors: in time {self.in_time:.1%}, carried over {self.carried}, "
            f"missed {self.missed}, at most {self.most_late} rounds late"
        )
        if self.latest is None:
            return text
        rank, how = self.latest
        one = self.ranks[rank]
        return f"{text}; rank {rank} is late {how}, in {one.share:.0%} of its calls, by {one.mean_ms:.0f} ms"


def reader(library_name: str) -> Callable[..., ExchangeStats]:
    """`exchange_stats` of one adapter."""

    def exchange_stats(process_set: Any = 0) -> ExchangeStats:
        """Totals since hvd.init(), of the rounds that did not wait for all ranks (docs/methods/partial.md)."""
        number = getattr(process_set, "process_set_id", process_set)
        library = loaded(library_name)
        found, lateness = (read(library, f"partial_{kind}", number) or {} for kind in ("counters", "lateness"))
        fields = (lateness[key] for key in ("calls", "missed", "late", "late_ns"))
        ranks = (
            RankLateness(calls, missed, late, late_ns / _NS_PER_MS)
            for calls, missed, late, late_ns in zip(*fields, strict=True)
        )
        known = tuple(ranks) if lateness["rounds"] else ()  # one rank of a process set coordinates it
        return ExchangeStats(**{**found, "lags": tuple(found["lags"]), "ranks": known})

    return exchange_stats
