"""Error in the last lines of a rank that could not write a report: Python failed before Paceline was imported."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.failure import consequences, excerpt
from paceline.failure.reports import Failed

HEADER = "Traceback (most recent call last):"
# Python writes no header for a script that cannot be compiled.
BEGINS = re.compile(rf'{re.escape(HEADER)}$|^  File ".+", line \d+$')
_FRAME = re.compile(r'\s+File "(.+)", line (\d+)')


def failure_in(lines: Sequence[str]) -> Failed | None:
    """Return the error that the last traceback ends with; None if there is none."""
    frames = [(at, found) for at, line in enumerate(lines) if (found := _FRAME.match(line))]
    if not frames:
        return None
    last = frames[-1][0]
    end = next((at for at in range(last + 1, len(lines)) if lines[at][:1].strip()), None)
    if end is None:
        return None
    begin = next((at + 1 for at in range(last, -1, -1) if lines[at].endswith(HEADER)), frames[0][0])
    place = next((f"{one[1]}, line {one[2]}" for _, one in reversed(frames) if excerpt.users(one[1])), "")
    shown = list(lines[max(begin, end - excerpt.FRAME_LINES) : end + 1])
    name = lines[end].partition(":")[0]
    return Failed(lines[end], place, shown, follows=consequences.of_name(name, lines[end]))
