"""Waits in the library that Ctrl-C ends: handlers of signals run in Python only, between two of its instructions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

LOOK_S = 0.1  # how soon a signal is heard


def interruptible(call: Callable[[], int]) -> int:
    """The result of `call`, which waits in the library for at most some limit of its own.

    Python runs handlers of signals in the main thread: there, `call` runs in a second thread. An exception of a handler
    ends this wait. The second thread ends with the limit of `call`, and holds what it refers to until then.
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
