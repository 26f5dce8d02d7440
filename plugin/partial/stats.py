"""hvd.exchange_stats(): how often this rank came in time for partial rounds, and how late it was otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.native.library import loaded, read


@dataclass(frozen=True)
class ExchangeStats:
    """Totals of this rank over all names of a process set.

    `names`: tensors that are exchanged partially. `rounds` were performed. `on_time` calls were in the round they asked
    for, `late` ones not. `missed` rounds had no fresh contribution of this rank. `carried` contributions left with a
    later round. `lags[n]` calls came n rounds late; the last element: so many or more.
    """

    names: int
    rounds: int
    on_time: int
    late: int
    missed: int
    carried: int
    lags: tuple[int, ...]

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
        )

    def __str__(self) -> str:
        if not self.names:
            return "no tensor is exchanged partially"
        return (
            f"{self.rounds} rounds of {self.names} tensors: in time {self.in_time:.1%}, carried over {self.carried}, "
            f"missed {self.missed}, at most {self.most_late} rounds late"
        )


def reader(library_name: str) -> Callable[..., ExchangeStats]:
    """`exchange_stats` of one adapter."""

    def exchange_stats(process_set: Any = 0) -> ExchangeStats:
        """Totals since hvd.init(), of the rounds that did not wait for all ranks (docs/partial.md)."""
        number = getattr(process_set, "process_set_id", process_set)
        found = read(loaded(library_name), "partial_counters", number) or {}
        return ExchangeStats(**{**found, "lags": tuple(found["lags"])})

    return exchange_stats
