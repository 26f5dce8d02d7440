"""The output of a run: its last lines are kept, and written to a file where the run fails."""

from __future__ import annotations

import collections
import tempfile
from pathlib import Path

KEPT_PIECES = 20_000


class Transcript:
    """The last KEPT_PIECES pieces of both streams, in the order in which they came."""

    def __init__(self) -> None:
        self._pieces: collections.deque[str] = collections.deque(maxlen=KEPT_PIECES)

    def add(self, piece: str) -> None:
        """Keep a piece of output, line end included."""
        self._pieces.append(piece)

    def write(self) -> Path | None:
        """Write a new file in the folder for temporary files; None where that cannot be."""
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="paceline-run-", suffix=".log", delete=False, encoding="utf-8", errors="replace"
            ) as file:
                file.writelines(self._pieces)
        except OSError:
            return None
        return Path(file.name)
