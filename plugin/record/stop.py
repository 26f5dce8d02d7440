"""A recorded run that ends after enough steps: a rank writes its trace, reports it, and ends unless the launcher does.

The launcher ends the run when every rank has reported (paceline.launch.enough). A rank whose launcher cannot reach it,
such as one behind a closed ssh connection, ends by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paceline.failure import reports
from paceline.record.processors import Used, used
from paceline.record.snapshot import steps
from paceline.record.trace import Processors, parts

# Bounds of the pause between two polls of the number of steps, in seconds.
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.05, 5.0
# Seconds that a rank trains on after its trace: at most, for ranks that are behind; and after the last of them.
_OTHERS_S, _LAUNCHER_S = 60.0, 3.0
_FORCED_S = 5.0  # from the request to end to the end of a rank whose main thread waits in a library
_LOOK_S = 0.2
_FIRST_SHARE = 3  # of the steps, after which the load of processors is that of any step
_ENDED_BY_TERM = 128 + signal.SIGTERM


class Stop:
    """Thread that polls the number of recorded steps of `library`; `written`: the trace is complete."""

    def __init__(
        self, library: ctypes.CDLL, path: Path, least_steps: int, least_s: float, write: Callable[[], None]
    ) -> None:
        self._library, self._path, self._write = library, path, write
        self._least_steps, self._least_s = least_steps, least_s
        self._size = int(library.horovod_size())
        self.written = False
        self._before: Used | None = None
        threading.Thread(target=self._run, daemon=True, name="paceline record stop").start()

    def processors(self) -> Processors | None:
        """Processors that this process has used in the steps after the first third; None before."""
        return None if self._before is None else used().since(self._before)

    def _run(self) -> None:
        begin_s = time.monotonic()
        while self._library.horovod_is_initialized():
            made = self._made()
            if not made:
                begin_s = time.monotonic()
            passed_s = time.monotonic() - begin_s
            share = 1.0
            if self._before is None:
                share = 1 / _FIRST_SHARE
                self._before = used() if self._enough(made, passed_s, share) else None
            if self._enough(made, passed_s):
                self._write()
                self.written = True
                if reports.asked():
                    reports.send(reports.Recorded(self._size, made))
                self._end()
                return
            steps_s = passed_s / made * max(0.0, share * self._least_steps - made) if made else 0.0
            left_s = max(steps_s, share * self._least_s - passed_s)
            time.sleep(min(max(_LEAST_PAUSE_S, left_s / 2), _MOST_PAUSE_S))

    def _enough(self, made: int, passed_s: float, share: float = 1.0) -> bool:
        return made >= max(1, share * self._least_steps) and passed_s >= share * self._least_s

    def _made(self) -> int:
        """Return the number of complete steps: the last recorded one may be in progress."""
        kept = steps(self._library)
        return kept[-1].index if kept else 0

    def _end(self) -> None:
        end_s = time.monotonic() + _OTHERS_S
        while len(parts(self._path)) < self._size and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        time.sleep(_LAUNCHER_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_FORCED_S)
        os._exit(_ENDED_BY_TERM)
