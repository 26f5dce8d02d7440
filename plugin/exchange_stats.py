"""hvd.exchange_stats(): how often this rank came in time for partial rounds, and how late it was otherwise."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.attach import loaded

_BEFORE = 6  # numbers before the histogram (bridge/partial_api.cc)
_MOST = 64


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

    def __str__(self) -> str:
        share = self.on_time / max(1, self.on_time + self.late)
        worst = max((lag for lag, count in enumerate(self.lags) if count), default=0)
        return (
            f"{self.rounds} rounds of {self.names} tensors: in time {share:.1%}, carried over {self.carried}, "
            f"missed {self.missed}, at most {worst} rounds late"
        )


def reader(library_name: str) -> Callable[..., ExchangeStats]:
    """`exchange_stats` of one adapter."""

    def exchange_stats(process_set: Any = 0) -> ExchangeStats:
        """Totals since hvd.init(), of the rounds that did not wait for all ranks (docs/partial.md)."""
        number = getattr(process_set, "process_set_id", process_set)
        counters = loaded(library_name).horovod_paceline_partial_counters
        counters.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]
        out = (ctypes.c_int64 * _MOST)()
        count = counters(number, out, _MOST)
        names, rounds, on_time, late, missed, carried = out[:_BEFORE]
        return ExchangeStats(names, rounds, on_time, late, missed, carried, tuple(out[_BEFORE:count]))

    return exchange_stats
