"""Start-up progress of a job: hosts that are up, time until all are up, time of the first step.

A host is up when all of its ranks have called hvd.init(), which they report (paceline.progress).
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from paceline.failure.reports import Came, Reduced, Report
from paceline.launch.status import StatusLine

# Times at which a slow start is reported without a terminal.
REPORT_AFTER_S = (15.0, 60.0, 300.0, 900.0)
_TICK_S = 0.5
_MOST_NAMED = 4


def ranks_of_hosts(asked: argparse.Namespace, named: Mapping[str, int]) -> dict[int, str]:
    """Return the host of each rank as horovodrun assigns them; {} if only horovodrun knows, or the assignment fails.

    `asked`: its arguments; `named`: slots of the hosts in them.
    """
    from horovod.runner.common.util import hosts
    from horovod.runner.launch import _is_elastic, lsf

    if _is_elastic(asked) or not asked.num_proc:
        return {}
    if not named and lsf.LSFUtils.using_lsf():
        return {}
    try:
        those = [hosts.HostInfo(*one) for one in (named or {"localhost": asked.num_proc}).items()]
        slots = hosts.get_host_assignments(those, asked.num_proc, asked.num_proc)
    except ValueError:  # horovodrun will report it
        return {}
    return {slot.rank: slot.hostname for slot in slots}


def by_host(ranks: Mapping[int, str]) -> dict[str, list[int]]:
    """Return hosts and their ranks, in the order of ranks."""
    found: dict[str, list[int]] = {}
    for rank, host in sorted(ranks.items()):
        found.setdefault(host, []).append(rank)
    return found


class Start:
    """Progress of a job's start from the reports of its ranks; time counts from construction.

    `hosts`: host of each rank; {}: unknown until ranks report it. `note` prints permanent lines, `line` is overwritten.
    """

    def __init__(
        self,
        hosts: Mapping[int, str],
        line: StatusLine,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts, self._line, self._note, self._clock = dict(hosts), line, note, clock
        self._known = bool(hosts)
        self._came: set[int] = set()
        self._begin_s = clock()
        self._all_up = self._stepped = False
        self._reported = 0  # number of REPORT_AFTER_S reported
        self._lock = threading.RLock()
        self._over = threading.Event()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Context in which a slow start is reported as it proceeds."""

        def run() -> None:
            while not self._over.wait(_TICK_S):
                self.tick()

        thread = threading.Thread(target=run, daemon=True, name="progress of the start")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._line.show("")

    def heard(self, rank: int, report: Report) -> None:
        """Process the report of a rank."""
        with self._lock:
            if isinstance(report, Came):
                self._came_to_init(rank, report.host)
            elif isinstance(report, Reduced) and not self._stepped:
                self._stepped = True
                self._over.set()
                self._line.show("")
                self._note(f"First step after {self._passed_s():.1f} s: rank 0 has its first allreduce.")

    def _came_to_init(self, rank: int, host: str) -> None:
        self._came.add(rank)
        if not self._known:
            self._hosts[rank] = host
        elif not self._all_up and self._came.issuperset(self._hosts):
            self._all_up = True
            names = list(by_host(self._hosts))
            self._note(f"Up after {self._passed_s():.1f} s: {_listed(names)}, with {_count(len(self._hosts), 'rank')}.")
        if self._line.shown:
            self.tick()

    def tick(self) -> None:
        """Update the progress display, and print a note when one is due."""
        with self._lock:
            if self._stepped:
                return
            passed_s = self._passed_s()
            # Stop after a while: the script may never reduce.
            self._line.show(f"{self._state()} {passed_s:.0f} s" if passed_s < REPORT_AFTER_S[-1] else "")
            due = self._reported < len(REPORT_AFTER_S) and passed_s >= REPORT_AFTER_S[self._reported]
            if due:
                self._reported += 1
                if not (self._all_up or self._line.shown):
                    self._note(f"{self._state()} {passed_s:.0f} s")

    def ended(self, code: int) -> None:
        """Process the end of the job; if it failed with some hosts up and others not, name the missing ones."""
        waited_for = self._waited_for()
        if code and self._came and waited_for and not self._stepped:
            self._note(f"Never came to hvd.init(): {waited_for}.")

    def _state(self) -> str:
        if self._all_up:
            return "All ranks are up; waiting for the first step."
        if not self._known:
            return f"Starting: {_count(len(self._came), 'rank')} up{_on(list(by_host(self._hosts)))}."
        hosts = by_host(self._hosts)
        up = sum(self._came.issuperset(ranks) for ranks in hosts.values())
        return f"Starting: {up} of {_count(len(hosts), 'host')} up, waiting for {self._waited_for()}."

    def _waited_for(self) -> str:
        missing = by_host({rank: host for rank, host in self._hosts.items() if rank not in self._came})
        return _listed([f"{host} (rank {', '.join(map(str, ranks))})" for host, ranks in missing.items()])

    def _passed_s(self) -> float:
        return self._clock() - self._begin_s


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _on(hosts: Sequence[str]) -> str:
    return f" on {_listed(hosts)}" if hosts else ""


def _listed(those: Sequence[str]) -> str:
    more = len(those) - _MOST_NAMED
    return ", ".join(those[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
