"""hvd.exchange_stats(): share of this rank's calls that were in time for partial rounds, and lateness of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.native.library import loaded, read

STEADY, RANDOM = "steadily", "at random"
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class RankLateness:
    """Lateness of one rank over all names of a process set.

    Attributes:
        calls: calls that the rank made.
        missed: rounds that were sent without it.
        late: calls that came after the round that they were for.
        late_ms: total delay of the late calls after that round was ready, in ms.
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

    Attributes:
        names: number of tensors that are exchanged partially.
        rounds: rounds performed.
        on_time: calls that were in the round they asked for.
        late: calls that were not.
        missed: rounds without a fresh contribution of this rank.
        carried: contributions that left with a later round.
        lags: lags[n] calls came n rounds late; the last element counts this many rounds or more.
        ranks: lateness of each rank, on the first rank of the process set; empty on the others.
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
        """The rank with the largest total delay, and "steadily" if most of its calls are late, else "at random".

        None if no call was late, and on ranks without the lateness of others.
        """
        worst = max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].late_ms, default=None)
        if worst is None or not self.ranks[worst].late:
            return None
        return worst, STEADY if self.ranks[worst].share > 0.5 else RANDOM

    @property
    def in_time(self) -> float:
        """Share of calls that were in the round they asked for; 1 before the first call."""
        calls = self.on_time + self.late
        return self.on_time / calls if calls else 1.0

    @property
    def most_late(self) -> int:
        """Largest lateness of a call, in rounds."""
        return max((lag for lag, count in enumerate(self.lags) if count), default=0)

    def since(self, earlier: ExchangeStats) -> ExchangeStats:
        """Return the difference to `earlier`; `names` stays the total."""
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
    """Return `exchange_stats` of one adapter."""

    def exchange_stats(process_set: Any = 0) -> ExchangeStats:
        """Return totals since hvd.init() of the rounds that did not wait for all ranks (docs/methods/partial.md).

        Args:
            process_set: a process set or its number; all ranks by default.
        """
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
