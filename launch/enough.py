"""End of a recorded run: all ranks have written their traces, or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.failure.reports import Recorded, Report

# Seconds from the first rank's trace to the end of the run, for ranks that do not get as far.
OTHERS_S = 30.0


class Enough:
    """Processes the ranks' reports. `limit_s`: seconds from now after which the run is ended anyway; None: no limit."""

    def __init__(self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recorded: set[int] = set()
        self._size = 0
        self._end_s = None if limit_s is None else clock() + limit_s
        self.timed_out = False

    def heard(self, rank: int, report: Report) -> None:
        """Process a report of `rank`."""
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
