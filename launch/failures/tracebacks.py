"""Tracebacks in the output of a rank, line by line, and the excerpt that a failure report shows."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

HEADER = "Traceback (most recent call last):"
_BETWEEN = (  # two tracebacks of one error
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Texts of errors that ranks raise because another rank failed or ended.
CONSEQUENCES = ("HorovodInternalError", "has been shut down", "StageFailed", "StageLost", "HorovodEnded")
# By Horovod, in whose log another thread's output may come after the first bracket.
LOGGED = re.compile(r"\[?\d{4}-\d\d-\d\d \d.*\] ")
_HOROVODS_ERROR = re.compile(r"\[?\d{4}-\d\d-\d\d \d[^\]]*: [EF] ")  # of levels error and fatal
_QUOTES = re.compile(r"could not go on: its stage failed:$")  # and the text of that rank's error follows
_FRAME = re.compile(r'\s+File "(.+)", line (\d+)(, in )?')
_SYNTAX_ERROR = re.compile(r'  File "(.+)", line (\d+)')  # Python writes no header where the script cannot be compiled
_CARETS = re.compile(r"\s+[~^]+")
_MESSAGE_LINES = 4  # after the first line of an error
_EXCERPT_LINES = 14


@dataclass
class Traceback:
    """A traceback. `error` is empty until its last line has come. `place`: the innermost line of the user's own.

    `quoted`: it stands in a message about a rank that failed.
    """

    lines: list[str] = field(default_factory=list)
    place: str = ""
    error: str = ""
    message: list[str] = field(default_factory=list)  # further lines of the error
    quoted: bool = False
    _complete: bool = False

    @property
    def is_consequence(self) -> bool:
        """True where the error follows from another rank's failure or end."""
        return any(words in self.error for words in CONSEQUENCES)

    def add(self, line: str) -> bool:
        """Add the next line of the rank; lines that Horovod's log has in between are left out.

        Returns False where the line comes after the traceback.
        """
        if LOGGED.match(line):  # by another thread, in between
            return not self.error
        if self.error:
            self._complete = self._complete or not line.strip() or len(self.message) == _MESSAGE_LINES
            if not self._complete:
                self.message.append(line)
            return not self._complete or line in _BETWEEN
        self.lines.append(line)
        found = _FRAME.match(line)
        if found and _is_users(found[1]):
            self.place = f"{found[1]}, line {found[2]}"
        if line[:1].strip() and line != HEADER:
            self.error = line
        return True

    def reason(self) -> str:
        """Return the error and the innermost line of the user's own."""
        return (self.error or "its last words are cut short") + (f" ({self.place})" if self.place else "")

    def excerpt(self) -> list[str]:
        """Return the frames of the user's own files and the error, at most 20 lines."""
        frames: list[list[str]] = []
        for line in self.lines:
            if _FRAME.match(line):
                frames.append([line])
            elif frames and line != self.error and not (len(frames[-1]) > 1 and _CARETS.fullmatch(line)):
                frames[-1].append(line)
        chosen = [_is_users(_path(frame)) for frame in frames]
        if not any(chosen):
            chosen = [True] * len(frames)
        room, last = _EXCERPT_LINES, len(frames) - 1
        for at in range(last, -1, -1):  # the innermost frames are the more telling ones
            room -= len(frames[at]) if chosen[at] else 0
            chosen[at] = chosen[at] and room >= 0
        found: list[str] = []
        skipped = 0
        for frame, taken in zip([*frames, []], [*chosen, True], strict=True):
            if taken and skipped:
                found.append(f"  ({skipped} frame{'s' * (skipped > 1)} left out)")
            found += frame if taken else []
            skipped = 0 if taken else skipped + 1
        return [*found, self.error, *self.message]


class Tracker:
    """The tracebacks in the lines of one rank, in their order."""

    def __init__(self) -> None:
        self.many: list[Traceback] = []
        self._quoting = False

    def add(self, line: str) -> bool:
        """Take the next line; return True where it belongs to a failure."""
        inside = bool(self.many) and not self.many[-1].error
        if not inside and (line.endswith(HEADER) or _SYNTAX_ERROR.fullmatch(line)):
            self.many.append(Traceback(quoted=self._quoting))
            self._quoting = False
            inside = line.endswith(HEADER) or self.many[-1].add(line)
        elif self.many:
            inside = self.many[-1].add(line)
        self._quoting = self._quoting or _QUOTES.search(line) is not None
        return inside or _HOROVODS_ERROR.match(line) is not None

    @property
    def own(self) -> list[Traceback]:
        """Those of this rank's errors, without quoted ones."""
        return [one for one in self.many if not one.quoted]

    @property
    def is_consequence(self) -> bool:
        """True where one of them follows from another rank's failure or end, or all are quoted."""
        return not self.own or any(one.is_consequence for one in self.own)


def _path(frame: list[str]) -> str:
    found = _FRAME.match(frame[0])
    return found[1] if found else ""


@functools.cache
def _own_folders() -> tuple[str, ...]:
    specs = [importlib.util.find_spec(f"paceline{name}") for name in ("", ".launch", ".torch", ".tensorflow", ".keras")]
    folders = [place for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
    return tuple(str(Path(place).resolve()) + os.sep for place in folders)


def _is_users(path: str) -> bool:
    if path.startswith("<") or "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith((sysconfig.get_path("stdlib") + os.sep, *_own_folders()))
