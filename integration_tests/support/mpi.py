"""Ranks under Open MPI's mpirun, also of a Horovod that is built with MPI."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_tests.patches import overlay
from integration_tests.sanitizers import TORCH_ALONE
from integration_tests.support.merging import variables
from integration_tests.support.ranks import ROOT, RankFailed
from paceline import config
from paceline.horovod import build

needs_open_mpi = pytest.mark.needs("mpirun.openmpi", "mpicxx.openmpi", "mpi.h")
# A build of Horovod for PyTorch alone, on a busy machine; once for each state of the sources.
BUILD_TIMEOUT_S = 1800
LOOK_S = 1.0
REAPED_S = 10.0  # time for mpirun to reap ended ranks


def mpirun(
    size: int, words: Sequence[str | Path], timeout_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command on `size` ranks of this machine; return its output (stdout and stderr) and mpirun's exit code.

    Open MPI 4.1's mpirun hangs or crashes in one of ten runs after ending ranks of which one was stopped. It is killed
    if only it is left. Raises subprocess.TimeoutExpired after ending all ranks.
    """
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(size), *map(str, words)]
    with subprocess.Popen(
        command,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        until = time.monotonic() + timeout_s
        ended = 0.0  # time at which all ranks were found ended; 0: not yet
        while True:
            try:
                output, _ = process.communicate(timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                ended = (ended or now) if _only_zombies(process.pid) else 0.0
                if ended and now - ended > REAPED_S:
                    process.kill()
                elif now > until:
                    process.terminate()  # it ends its ranks, then itself
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.communicate(timeout=10)
                    process.kill()
                    raise
    return subprocess.CompletedProcess(command, process.returncode, output)


def _only_zombies(parent: int) -> bool:
    """True if a process has children, and all of them have ended."""
    states = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(OSError):
            states.append(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0])
    return bool(states) and set(states) == {"Z"}


def horovod_with_mpi(folder: Path) -> dict[str, str]:
    """Build Horovod with MPI for PyTorch (then cached), install it into `folder`; return the environment for ranks."""
    with variables(**TORCH_ALONE):
        wheel = build.build(config.read(), mpi=True)
    overlay(wheel, folder)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def run_under_mpi(
    body: Callable[..., Any], size: int, *args: Any, env: Mapping[str, str], timeout_s: float
) -> list[Any]:
    """Run `body(rank, size, *args)` on `size` ranks under mpirun, like `run_ranks`; return the results by rank.

    Raises `RankFailed` with their output.
    """
    with tempfile.TemporaryDirectory(prefix="mpi-") as folder:
        (Path(folder) / "call").write_bytes(pickle.dumps((body.__module__, body.__qualname__, args)))
        done = mpirun(size, [sys.executable, "-m", "integration_tests.support.mpi_rank", folder], timeout_s, env)
        if done.returncode:
            raise RankFailed(f"mpirun ended with {done.returncode}:\n{done.stdout[-6000:]}")
        return [pickle.loads((Path(folder) / str(rank)).read_bytes()) for rank in range(size)]
