"""Ctrl-C ends `paceline record` at any point of Python's execution, and leaves no rank running."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import horovod.torch as hvd
import pytest

from integration_tests.support.merging import ByHand
from integration_tests.support.more import first_of
from integration_tests.support.processes import PACELINE
from integration_tests.support.ranks import ranks
from paceline.native.agreement import agree
from paceline.native.library import loaded

SOAK_ROUNDS = 300
LIMIT_S = 150.0  # of hangs

# Ctrl-C while a finalizer runs, in the middle of an import: Python prints the KeyboardInterrupt and forgets it.
FINALIZER = """
import os, signal, sys

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

class Meanwhile:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            Last()

sys.meta_path.insert(0, Meanwhile())
from paceline.launch import cli
cli.main(sys.argv[1:])
"""


def start(
    folder: Path, mark: Path, program: Sequence[str] = PACELINE, number: int = signal.SIGINT
) -> subprocess.Popen[str]:
    """`paceline record` of two ranks that write their process numbers into `mark` and sleep."""
    words = ["record", "-np", "2", "sh", "-c", f"echo $$ >>{mark}; exec sleep 600"]
    return subprocess.Popen(
        [*program, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        # A shell that starts the tests in the background lets them, and their children, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )


def ranks_started(mark: Path) -> list[str]:
    return mark.read_text().split() if mark.exists() else []


def wait_gone(pids: Sequence[str]) -> None:
    limit = time.monotonic() + LIMIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < limit, "a rank outlived the command"
        time.sleep(0.05)


@pytest.mark.parametrize("module", ["paceline.launch.record.command", "horovod.runner.launch", "rich.console"])
def test_interrupt_in_a_finalizer_is_not_lost(module: str, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    process = start(tmp_path, mark, [sys.executable, "-c", FINALIZER.format(module=module)])
    limit = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None:
            assert not ranks_started(mark), "Ctrl-C was forgotten: the ranks were started after it"
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert process.returncode == 130, process.communicate()[1]
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert not ranks_started(mark)


def wait_started(process: subprocess.Popen[str], mark: Path) -> None:
    limit = time.monotonic() + LIMIT_S
    while len(ranks_started(mark)) < 2:
        assert time.monotonic() < limit
        assert process.poll() is None
        time.sleep(0.05)


@pytest.mark.parametrize(
    "number", first_of((signal.SIGINT, signal.SIGTERM), signal.SIGTERM), ids=lambda number: number.name
)
def test_interrupted_record_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    process = start(tmp_path, mark, number=number)
    wait_started(process, mark)
    process.send_signal(number)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, said
    wait_gone(ranks_started(mark))


def test_second_interrupt_does_not_leave_the_ranks_to_themselves(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    process = start(tmp_path, mark)
    wait_started(process, mark)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)  # horovodrun no longer answers
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, said
    wait_gone(children)
    wait_gone(ranks_started(mark))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_interrupts_at_any_moment(tmp_path: Path) -> None:
    generator = random.Random(7)
    for count in range(SOAK_ROUNDS):
        mark = tmp_path / f"pids{count}"
        process = start(tmp_path, mark)
        time.sleep(generator.uniform(0.3, 2.5))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
        # Before our first line Python ends in its own ways; it has started nothing then.
        assert process.returncode == 130 or not ranks_started(mark), f"round {count}: {said}"
        wait_gone(ranks_started(mark))


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@ranks(2, fresh=True)
def test_interrupt_ends_a_meeting(rank: int, size: int, tmp_path: Path) -> None:
    """The first rank waits for the others, which are late, and is interrupted; all continue."""
    if rank == 0:
        before = signal.signal(signal.SIGALRM, _interrupted)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            agree(loaded("torch"), 0, "interrupts", [1], "numbers", "")
        signal.signal(signal.SIGALRM, before)
        (tmp_path / "interrupted").touch()
    else:
        ByHand.wait((tmp_path / "interrupted").exists)
        agree(loaded("torch"), 0, "interrupts", [1], "numbers", "")
    hvd.barrier()
