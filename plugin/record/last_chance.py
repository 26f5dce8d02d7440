"""A rank that is asked to end writes down what it has, even while its main thread waits within a library.

Python runs handlers of signals between two steps of the main thread only, and a rank that waits for another one makes
none. But it notes at once, in a descriptor, that a signal came: a thread of ours waits for that.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)
_begun = False


def before_the_end(act: Callable[[], None]) -> None:
    """Call `act` when a signal asks this process to end, once or more; then it ends as it would have.

    What is ignored stays ignored. Only the first call counts; nothing is done outside of the main thread, which alone
    may say what signals do, and beside another owner of the descriptor (an event loop) handlers alone call.
    """
    global _begun
    if _begun or threading.current_thread() is not threading.main_thread():
        return
    _begun = True
    for number in _ENDING:
        before = signal.getsignal(number)
        if before not in (signal.SIG_IGN, None):
            signal.signal(number, _first(act, number, before))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    owner = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if owner == -1:
        threading.Thread(target=_watch, args=(reader, act), name="paceline-last-chance", daemon=True).start()
    else:
        signal.set_wakeup_fd(owner)
        os.close(reader)
        os.close(writer)


def _first(act: Callable[[], None], number: int, before: Any) -> Callable[[int, FrameType | None], None]:
    owner = os.getpid()

    def handler(_number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:  # and not a process that was forked since
            act()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            os.kill(os.getpid(), number)

    return handler


def _watch(reader: int, act: Callable[[], None]) -> None:
    while number := os.read(reader, 1):
        if number[0] in _ENDING:
            act()
