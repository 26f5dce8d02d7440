"""Waits in the library that Ctrl-C can end: Python runs signal handlers only between two of its instructions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

LOOK_S = 0.1  # maximum delay of a signal


def interruptible(call: Callable[[], int]) -> int:
    """Return the result of `call`, which waits in the library up to a limit of its own.

    Python runs signal handlers in the main thread. There, `call` runs in a second thread, and an exception of a handler
    ends this wait. The second thread ends with the limit of `call`, and keeps its arguments alive until then.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: Future[int] = Future()

    def wait() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    waiting = threading.Thread(target=wait, name="paceline-wait", daemon=True)
    waiting.start()
    while waiting.is_alive():
        waiting.join(LOOK_S)
    return result.result()
