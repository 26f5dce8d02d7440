"""Last line of a terminal, rewritten in place while other output scrolls past above it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_ERASE = "\r\x1b[K"


class StatusLine:
    """Status line on `stream`; without effect if that is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.shown = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._text = ""
        self._lock = threading.RLock()
        self._at_start = True  # of a line: a status after an incomplete line would look like its rest

    def show(self, text: str) -> None:
        """Replace the status; "" removes it."""
        with self._lock:
            if self.shown and text != self._text:
                with self.away():
                    self._text = text

    @contextmanager
    def away(self) -> Iterator[None]:
        """Context that hides the status while other complete lines are written."""
        with self._lock:
            if self._text and self._at_start:
                self._put(_ERASE)
            yield
            if self._text and self._at_start:
                self._put(self._text[: self._columns() - 1])

    def around(self, write: Callable[[str], None]) -> Callable[[str], None]:
        """Return `write`, which hides the status meanwhile."""

        def written(text: str) -> None:
            with self.away():
                write(text)
                self._at_start = text.endswith("\n")

        return written

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80

    def _put(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
