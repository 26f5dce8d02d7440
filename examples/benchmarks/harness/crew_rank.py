"""A rank's side of a crew (crew.py): where its output goes, its controller, and an end with that.

Nothing may stay behind, not even a rank that is stopped when the controller dies.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from pathlib import Path

from paceline.examples.benchmarks.harness.assignment import Hello

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def log_path(folder: str, rank: int) -> Path:
    """Where a rank's output goes."""
    return Path(folder) / f"rank{rank}.log"


def serve(rank: int, folder: str, control: str, orders: Callable[[Connection], None]) -> None:
    """Call `orders` with a connection to the controller, then leave without the goodbyes of communication libraries:
    peers may be stopped.
    """
    end_with_parent()
    redirect_output(log_path(folder, rank))
    with Client(control, "AF_UNIX") as connection:
        connection.send(Hello(rank, os.getpid()))
        orders(connection)
    os._exit(0)


def redirect_output(path: Path) -> None:
    """Into the file `path`, to which SIGUSR1 then adds the stack of every thread."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def end_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
