"""Reports of a rank's start and end: its arrival at hvd.init(), rank 0's first allreduce, and the rank's exit.

`paceline run` requests the reports of the start with PACELINE_PROGRESS and summarises them (paceline.launch.start).
Under other launchers the user may set the variable, and the ranks print sentences.
"""

from __future__ import annotations

import ctypes
import threading
import time

from paceline import config
from paceline.failure import reports
from paceline.native.library import read
from paceline.native.world import process
from paceline.record.kept import StepsKept
from paceline.record.snapshot import steps
from paceline.steps import most_steps
from paceline.variables import host

# Number of recorded steps kept: the first allreduce and further steps may be over before the first poll.
_KEPT_STEPS = 100
# Polling interval: reported times are accurate to 50 ms or 1 %, whichever is more.
_SLICE_S = 0.05
_SHARE = 0.01
_LONGEST_SLICE_S = 1.0

_came = False
_watched: _FirstAllreduce | None = None


def asked() -> bool:
    """Return True if PACELINE_PROGRESS is set and true."""
    settings = config.settings()
    return "progress" in settings.given() and settings.progress


def came_to_init() -> None:
    """Report once that this rank is about to meet the others in hvd.init()."""
    global _came
    if not _came:
        _came = True
        _send_report(reports.Came(host()), f"came to hvd.init() on {host()}")


def watch(library: ctypes.CDLL, recorded: bool) -> None:
    """Report, once in this process, the end of the first allreduce; afterwards stop polling.

    `recorded`: steps are already recorded for another purpose.
    """
    global _watched
    if _watched is None:
        _watched = _FirstAllreduce(library, recorded)


def before_shutdown(in_order: bool, status: int) -> None:
    """Poll once more, because a short job may end between two polls; report how this rank leaves."""
    if _watched is not None:
        _watched.look()
    if in_order and reports.asked(reports.ALL):
        reports.send(reports.Left(most_steps()))
    elif status and reports.asked():
        reports.send(reports.Exits(status))


class _FirstAllreduce:
    """Watch for the first allreduce: a thread polls the library's record of steps.

    It works with all frameworks and with compiled steps, whose collectives do not pass through Python.
    """

    def __init__(self, library: ctypes.CDLL, recorded: bool) -> None:
        self._library, self._recorded = library, recorded
        self._messages = 0  # count at the last poll
        self._lock = threading.Lock()
        self._done = False
        if not recorded:
            library.horovod_paceline_record_start(_KEPT_STEPS)
        threading.Thread(target=self._run, daemon=True, name="paceline progress").start()

    def _run(self) -> None:
        begin_s = time.monotonic()
        while self._library.horovod_is_initialized() and not self.look():
            passed_s = time.monotonic() - begin_s
            time.sleep(min(max(_SLICE_S, passed_s * _SHARE), _LONGEST_SLICE_S))

    def look(self) -> bool:
        """Return True if the first allreduce is done; report it the first time."""
        with self._lock:
            if not self._done and self._reduced():
                self._done = True
                if not self._recorded and process(self._library).find(StepsKept) is None:
                    self._library.horovod_paceline_record_stop()
                _send_report(reports.Reduced(), "the first allreduce is done")
            return self._done

    def _reduced(self) -> bool:
        counted = read(self._library, "counters") or {}
        before, self._messages = self._messages, counted["messages"]
        return self._messages > before and any(
            message.kind in ("allreduce", "adasum") for step in steps(self._library) for message in step.collectives
        )


def _send_report(report: reports.Came | reports.Reduced, sentence: str) -> None:
    if reports.asked(reports.ALL):
        reports.send(report)
    else:
        reports.write(f"Paceline: {sentence}")
