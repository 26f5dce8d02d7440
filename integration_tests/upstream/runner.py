"""Run one of upstream's files as upstream does, with a time limit, leaving no process running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil

from integration_tests.upstream.expectations import Expectation, RankOutcome, read

RECORD = Path(__file__).with_name("record.py")
# A test that takes longer prints the stack of every thread into the log and continues.
STACKS_AFTER_S = 100
GRACE_S = 10.0
# Every process of a run inherits this variable, so that processes lost by horovodrun are found, too.
MARK = "UPSTREAM_RUN"


@dataclass(frozen=True)
class Run:
    """A finished run: one outcome per rank, and the output of all of them in `log`."""

    ranks: list[RankOutcome]
    seconds: float
    timed_out: bool
    log: Path


def command(row: Expectation, tests: Path, size: int, environment: Path, folder: Path) -> list[str | Path]:
    """Command to start in the file's folder."""
    pytest: list[str | Path] = [
        environment / "bin/python", RECORD, folder, tests / row.path,
        "-v", "-p", "no:cacheprovider", "--rootdir", tests,
    ]  # fmt: skip
    if row.folder == "parallel":
        stacks = ["-o", f"faulthandler_timeout={STACKS_AFTER_S}"]
        return [environment / "bin/horovodrun", "-np", str(size), "-H", f"localhost:{size}", "--gloo", *pytest, *stacks]
    # No stacks here: the timer's thread does not survive the fork, and a failing test would wait for it for ever.
    return [*pytest, "--forked"]


def run(row: Expectation, tests: Path, size: int, environment: Path, folder: Path) -> Run:
    """Run the file on `size` ranks, or in one process if the file starts its own. `folder` takes the records."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("rank*.jsonl"):
        old.unlink()
    mark = uuid.uuid4().hex
    env = {
        **os.environ,
        MARK: mark,
        "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(tests / "utils"),
        "PYTHONDONTWRITEBYTECODE": "1",  # the tests' folder is the user's, not ours to write to
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    log = folder / "log.txt"
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command(row, tests, size, environment, folder)],
            cwd=(tests / row.path).parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(row.limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            process.send_signal(signal.SIGTERM)  # horovodrun ends its ranks on this
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass
        finally:
            end_marked(mark)
            process.wait(GRACE_S)
    count = size if row.folder == "parallel" else 1
    records = [read(folder / f"rank{rank}.jsonl", rank) for rank in range(count)]
    return Run(records, time.monotonic() - started, timed_out, log)


def end_marked(mark: str) -> None:
    """Kill every process that has the mark in its environment."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
