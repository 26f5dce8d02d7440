"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever its main thread happens to be. In a finalizer or a weak reference's callback
(garbage collection and every import run such) the exception is printed and forgotten; in a `finally` it leaves the
rest undone; and a signal that comes just before a blocking call does not end that call. So signals are noted as well
as raised: whoever is about to wait asks what was noted, and who must not be torn out of its work has them only noted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What asks a command to end: Ctrl-C, a termination request, the end of the terminal.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C

# How many were noted since the outermost `remembered` or `held` was entered; how many of both, and of `held`, are open.
_noted = 0
_within = 0
_holding = 0


def _note(_number: int, _frame: FrameType | None) -> None:
    global _noted
    _noted += 1
    if not _holding:
        raise KeyboardInterrupt


@contextmanager
def _noting(numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    global _noted, _within
    if not _within:
        _noted = 0
    before = {number: signal.getsignal(number) for number in numbers}
    # What our caller ignores, as a shell does for what it starts in the background, stays ignored.
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    _within += 1
    for number in ours:
        signal.signal(number, _note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        _within -= 1


@contextmanager
def remembered() -> Iterator[None]:
    """A whole command: Ctrl-C raises KeyboardInterrupt as ever, and is noted. In the main thread only, as `held`."""
    with _noting((signal.SIGINT,)):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Requests to end are noted and not raised. Raises KeyboardInterrupt for one that was noted before."""
    global _holding
    with _noting(_ENDING):
        _holding += 1
        try:
            check()
            yield
        finally:
            _holding -= 1


def count() -> int:
    """How many were noted."""
    return _noted


def check() -> None:
    """Raise KeyboardInterrupt if one was noted."""
    if _noted:
        raise KeyboardInterrupt
