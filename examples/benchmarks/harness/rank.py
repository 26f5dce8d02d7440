"""The program of a rank: it connects to its peers and executes the controller's orders until the controller closes.

    python -m paceline.examples.benchmarks.harness.rank PLACE SETUP OPTIONS

A PLACE without a rank means all ranks of the world: this process imports PyTorch and forks them.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import msgspec

from paceline.examples.benchmarks.harness import system
from paceline.examples.benchmarks.harness.place import Hello, Place

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Imported once for all forked ranks. None of these modules starts a thread, which a fork would lose.
_IMPORTED = (
    "horovod.torch",
    "horovod.runner.gloo_run",
    "horovod.runner.http.http_server",
    "paceline.fusion.driver",
    "paceline.fusion.report",
    "paceline.record.snapshot",
)


def log_path(folder: str, rank: int) -> Path:
    """Return the file of a rank's output."""
    return Path(folder) / f"rank{rank}.log"


def serve(place: Place, setup: str, options: dict[str, Any]) -> None:
    """Connect, then answer orders. Exit without shutting down communication libraries: peers may be stopped."""
    _prepare(place, place.rank)
    with Client(place.control, "AF_UNIX") as control:
        control.send(Hello(place.rank, os.getpid()))
        worker = system.load(setup)(place, options)
        control.send(worker.hello)
        while True:
            try:
                control.send(worker.answer(control.recv(), control))
            except EOFError:
                break
    os._exit(0)


def fork_all(place: Place, setup: str, options: dict[str, Any]) -> int:
    """Fork all ranks and wait for them. Return 0, or the status of the first that failed, after killing the others."""
    _prepare(place, 0)
    for module in (*_IMPORTED, setup.partition(":")[0]):
        importlib.import_module(module)
    pids = {_fork(replace(place, rank=rank), setup, options) for rank in range(place.size)}
    failed = 0
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status and not failed:
            failed = os.waitstatus_to_exitcode(status) or 1
            for other in pids:
                os.kill(other, signal.SIGKILL)  # also if the process is stopped
    return failed


def _fork(place: Place, setup: str, options: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        serve(place, setup, options)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # the child must not run the parent's code


def _prepare(place: Place, rank: int) -> None:
    """Die with the parent, and write output into a file, to which SIGUSR1 adds the stack of every thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    log = os.open(log_path(place.folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def main(place_text: str, setup: str, options_text: str) -> int:
    """Serve as one rank, or fork all of them."""
    place = msgspec.json.decode(place_text, type=Place)
    options = json.loads(options_text)
    if place.rank < 0:
        return fork_all(place, setup, options)
    serve(place, setup, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
