"""Lines that may belong to a failure: they wait until the run ends, or goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A rank that has written a traceback may take a while to end, or hang.
HOLD_S = 60.0
# A rank that writes other lines so long after its traceback has handled the error, unless the run ends as soon again.
ALIVE_S = 5.0


class Withheld:
    """Pieces of output by rank. `show` is called with them after `hold_s`, unless they are dropped before.

    `alive_s`: a rank that writes so long after its last withheld piece goes on, and its pieces are shown after as long
    again. `lock`: held by callers, and while `show` is called.
    """

    def __init__(self, show: Callable[[str, str], None], lock: threading.RLock, hold_s: float, alive_s: float) -> None:
        self._show, self._lock, self._hold_s, self._alive_s = show, lock, hold_s, alive_s
        self._last_s: dict[str, float] = {}  # when each rank's last piece was withheld
        self._pieces: list[tuple[str, str]] = []
        self._timer: threading.Timer | None = None
        self._due_s = 0.0

    def add(self, rank: str, piece: str) -> None:
        """Withhold a piece of this rank."""
        self._pieces.append((rank, piece))
        self._last_s[rank] = time.monotonic()
        if self._timer is None:
            self._show_in(self._hold_s)

    def has(self, rank: str) -> bool:
        """Return True while pieces of this rank are withheld."""
        return rank in self._last_s

    def wrote(self, rank: str) -> None:
        """Take notice that this rank wrote a line that belongs to no failure."""
        now_s = time.monotonic()
        alive = self.has(rank) and now_s > self._last_s[rank] + self._alive_s
        if alive and self._due_s > now_s + self._alive_s:
            self._show_in(self._alive_s)

    def release(self) -> None:
        """Show everything that is withheld."""
        for rank, piece in self.drop():
            self._show(rank, piece)

    def drop(self) -> list[tuple[str, str]]:
        """Return everything that is withheld, by rank, and show none of it."""
        self._stop()
        dropped, self._pieces = self._pieces, []
        self._last_s.clear()
        return dropped

    def _show_in(self, seconds: float) -> None:
        self._stop()
        self._due_s = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._release_if_due)
        self._timer.daemon = True
        self._timer.start()

    def _release_if_due(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():  # else another one, or none, has taken its place
                self.release()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
