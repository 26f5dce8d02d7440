"""Reliable handling of Ctrl-C.

Python raises KeyboardInterrupt wherever its main thread is. In a finalizer or a weak reference's callback (run by
garbage collection and by every import) the exception is printed and lost. In a `finally` it skips the rest. A signal
just before a blocking call does not end that call. Therefore signals are counted as well as raised. Code that is about
to wait checks the count. Code that must not be interrupted has signals only counted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Signals that ask a command to end: Ctrl-C, a termination request, a closed terminal.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

INTERRUPTED = 130  # exit code that a shell reports for a command ended by Ctrl-C

# Signals counted since the outermost `remembered` or `held` was entered; open contexts of both kinds; open `held`
# contexts.
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
    # Signals that our caller ignores stay ignored, as a shell does for background commands.
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
    """Context of a whole command: Ctrl-C raises KeyboardInterrupt and is counted. Main thread only, as for `held`."""
    with _noting((signal.SIGINT,)):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Context in which requests to end are counted, not raised. Raises KeyboardInterrupt if one was counted before."""
    global _holding
    with _noting(_ENDING):
        _holding += 1
        try:
            check()
            yield
        finally:
            _holding -= 1


def count() -> int:
    """Number of signals counted."""
    return _noted


def check() -> None:
    """Raise KeyboardInterrupt if a signal was counted."""
    if _noted:
        raise KeyboardInterrupt
