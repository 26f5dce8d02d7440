"""Excerpt of a traceback for the user: frames of the user's own files, and the error."""

from __future__ import annotations

import sysconfig
import traceback
from types import TracebackType

FRAME_LINES = 14
_MESSAGE_LINES = 5  # of an error
_COLUMNS = 400  # of a line


def users(path: str) -> bool:
    """Return True if a file is the user's own, not a library's."""
    library = (path.startswith("<") and path != "<string>") or "site-packages" in path or "dist-packages" in path
    return not library and not path.startswith(sysconfig.get_path("stdlib"))


def place(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's files; "" if there is none."""
    return next((f"{one.filename}, line {one.lineno}" for one, own in reversed(_frames(trace)) if own), "")


def lines(error: BaseException) -> list[str]:
    """Return frames, the innermost ones if there are many, and the error, at most 20 lines."""
    frames = _frames(error.__traceback__)
    chosen = [own for _, own in frames]
    if not any(chosen):
        chosen = [True] * len(frames)
    room = FRAME_LINES
    found: list[str] = []
    skipped = 0
    for (frame, _), wanted in zip(reversed(frames), reversed(chosen), strict=True):
        shown = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}']
        shown += [f"    {frame.line}"] if frame.line else []
        if not wanted or len(shown) > room:
            skipped += 1
            continue
        found[:0] = [*shown, *_left_out(skipped)]
        room, skipped = room - len(shown), 0
    return [line[:_COLUMNS] for line in (*_left_out(skipped), *found, *message(error)[:_MESSAGE_LINES])]


def message(error: BaseException) -> list[str]:
    """Return the lines that Python writes below the frames."""
    return "".join(traceback.format_exception_only(error)).splitlines()


def headline(error: BaseException) -> str:
    """Return the class of an error and the first line of its text."""
    return next((line for line in message(error) if line[:1].strip()), type(error).__name__)[:_COLUMNS]


def _left_out(frames: int) -> list[str]:
    return [f"  ({frames} frame{'s' * (frames > 1)} left out)"] if frames else []


def _frames(trace: TracebackType | None) -> list[tuple[traceback.FrameSummary, bool]]:
    """Return the frames, each with True if it is the user's own; Paceline may be installed next to the script."""
    modules = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in traceback.walk_tb(trace)]
    summaries = traceback.extract_tb(trace)
    return [(one, users(one.filename) and module != "paceline") for one, module in zip(summaries, modules, strict=True)]
