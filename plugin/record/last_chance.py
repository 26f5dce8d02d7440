"""Last actions of a rank that is asked to end, even while its main thread waits within a library.

Python runs signal handlers only between two instructions of the main thread, and a rank that waits for another one
executes none. However, Python writes the signal to a descriptor at once, and a thread of Paceline's reads it.
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
    """Call `act` when a signal asks this process to end, once or more; then end as without this function.

    Ignored signals stay ignored. Only the first call has an effect, and only in the main thread, which alone may set
    signal handlers. If the descriptor has another owner (an event loop), only the handlers call `act`.
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
        if os.getpid() == owner:  # not in a forked process
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
