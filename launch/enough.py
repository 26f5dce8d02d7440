"""When a recorded run has enough: all ranks have written their traces, or the run has taken its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.failure.reports import Recorded, Report

# Seconds from the first rank's trace to the end of the run, for ranks that do not come as far.
OTHERS_S = 30.0


class Enough:
    """Takes what ranks report. `limit_s`: seconds from now after which the run is ended in any case; None: never."""

    def __init__(self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recorded: set[int] = set()
        self._size = 0
        self._end_s = None if limit_s is None else clock() + limit_s
        self.timed_out = False

    def heard(self, rank: int, report: Report) -> None:
        """Take a report of `rank`."""
        if isinstance(report, Recorded):
            if not self._recorded:
                end_s = self._clock() + OTHERS_S
                self._end_s = end_s if self._end_s is None else min(end_s, self._end_s)
            self._recorded.add(rank)
            self._size = report.size

    @property
    def over(self) -> bool:
        """Return True if the run is to be ended."""
        if self._recorded and len(self._recorded) >= self._size:
            return True
        if self._end_s is not None and self._clock() >= self._end_s:
            self.timed_out = not self._recorded
            return True
        return False
