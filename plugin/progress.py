"""Reports of a rank's start and end: that it came to hvd.init(), when rank 0 has reduced first, and how it leaves.

`paceline run` asks for the start with PACELINE_PROGRESS, and sums it up (paceline.launch.start). Under other launchers,
the user may ask, and reads sentences.
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

# The first allreduce may be over, and steps after it, before anybody looks: so many steps are kept for the look.
_KEPT_STEPS = 100
# How often is looked: what is told is right to 50 ms or 1 %, whichever is more.
_SLICE_S = 0.05
_SHARE = 0.01
_LONGEST_SLICE_S = 1.0

_came = False
_watched: _FirstAllreduce | None = None


def asked() -> bool:
    """Whether this rank is to say something: the variable is set, and says so."""
    settings = config.settings()
    return "progress" in settings.given() and settings.progress


def came_to_init() -> None:
    """This rank is about to meet the others, for the first time."""
    global _came
    if not _came:
        _came = True
        _tell(reports.Came(host()), f"came to hvd.init() on {host()}")


def watch(library: ctypes.CDLL, recorded: bool) -> None:
    """Say, once in this process, when the first allreduce is done. `recorded`: steps are recorded for others already.

    From then on nothing is done for it.
    """
    global _watched
    if _watched is None:
        _watched = _FirstAllreduce(library, recorded)


def before_shutdown(in_order: bool, status: int) -> None:
    """Look once more, for a short job may have ended between two looks; report how this rank leaves."""
    if _watched is not None:
        _watched.look()
    if in_order and reports.asked(reports.ALL):
        reports.send(reports.Left(most_steps()))
    elif status and reports.asked():
        reports.send(reports.Exits(status))


class _FirstAllreduce:
    """Looks at what the library recorded, in a thread: whatever framework asks for it, and however steps are compiled,
    nothing of it passes through Python.
    """

    def __init__(self, library: ctypes.CDLL, recorded: bool) -> None:
        self._library, self._recorded = library, recorded
        self._messages = 0  # when last looked
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
        """Whether it is done; says so the first time."""
        with self._lock:
            if not self._done and self._reduced():
                self._done = True
                if not self._recorded and process(self._library).find(StepsKept) is None:
                    self._library.horovod_paceline_record_stop()
                _tell(reports.Reduced(), "the first allreduce is done")
            return self._done

    def _reduced(self) -> bool:
        counted = read(self._library, "counters") or {}
        before, self._messages = self._messages, counted["messages"]
        return self._messages > before and any(
            message.kind in ("allreduce", "adasum") for step in steps(self._library) for message in step.collectives
        )


def _tell(report: reports.Came | reports.Reduced, sentence: str) -> None:
    if reports.asked(reports.ALL):
        reports.send(report)
    else:
        reports.write(f"Paceline: {sentence}")
