"""Waits in C that Ctrl-C ends, and errors before a world begins."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from paceline import lifecycle
from paceline.errors import UserError
from paceline.native.interruptible import interruptible

WAIT_S = 1000  # longer than a test may take


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def test_signal_ends_a_wait_in_c() -> None:
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            interruptible(lambda: int(ctypes.CDLL(None).poll(None, 0, 1000 * WAIT_S)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _refuses() -> int:
    raise TimeoutError("its own")


def test_results_and_errors_are_those_of_the_call_and_other_threads_wait_themselves() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="its own"):
        interruptible(_refuses)
    # Other threads wait themselves.
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(interruptible(threading.get_ident)))
    other.start()
    other.join()
    assert seen == [other.ident]


class _Library:
    """Horovod's library for TensorFlow, as far as it is asked before anything is changed."""

    _name = "/somewhere/horovod/tensorflow/mpi_lib.so"
    _handle = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


@pytest.mark.parametrize("exchange", ["pipelined", "majority", "solo"])
def test_keras_2_is_refused_with_the_exchange_that_was_set(monkeypatch: pytest.MonkeyPatch, exchange: str) -> None:
    for module in ("paceline.fusion.control", "paceline.exchange.worlds"):  # they would talk to the library
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setenv("PACELINE_EXCHANGE", exchange)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(UserError, match=f"PACELINE_EXCHANGE={exchange} is set together with TF_USE_LEGACY_KERAS"):
        lifecycle.before_init(_Library())  # type: ignore[arg-type]
