"""Ctrl-C ends a wait in C, which Python's handlers of signals do not."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from types import FrameType

import pytest

from paceline.native.interruptible import interruptible

WAIT_S = 20


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def test_signal_ends_a_wait_in_c() -> None:
    before = signal.signal(signal.SIGALRM, _raise)
    begun = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            interruptible(lambda: int(ctypes.CDLL(None).poll(None, 0, 1000 * WAIT_S)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < WAIT_S / 4


def _refuses() -> int:
    raise TimeoutError("its own")


def test_results_and_errors_are_those_of_the_call() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="its own"):
        interruptible(_refuses)


def test_other_threads_wait_themselves() -> None:
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(interruptible(threading.get_ident)))
    other.start()
    other.join()
    assert seen == [other.ident]
