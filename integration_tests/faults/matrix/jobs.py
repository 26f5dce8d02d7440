"""Runs one case: starts its ranks, counts the fault, and collects what is left: reports, files, processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from integration_tests.faults.matrix import ranks as body
from integration_tests.faults.matrix.cases import PAUSE_S, Case
from integration_tests.faults.matrix.injector import MARK
from integration_tests.faults.matrix.ranks import CHECKPOINT, Report
from integration_tests.faults.matrix.sentences import Action
from integration_tests.faults.matrix.training import off_from_expected
from integration_tests.support.arming import ARMED
from integration_tests.support.ranks import World
from paceline.errors import UserError
from paceline.history.checks.checker import check

BEGIN_LIMIT_S = 90.0
# From the fault to the last answer; only a hang takes longer.
HANG_LIMIT_S = 60.0
# Two checkpoints, of large gradients, too; and a history.
DISK_BYTES = 48 << 20


@dataclass
class Outcome:
    """Results of a case.

    Attributes:
        mark: facts about the fault from the victim; None if it did not happen.
        reports: of ranks that ended, the victim included if it is alive.
        hung: ranks that did not end, with their stacks in `stacks`.
        ended: ranks that `paceline rank` has ended because it lost rank 0, as their output says.
        checkpoint: steps of the last complete checkpoint, -1 if there is none or it is damaged.
        violations: of the history.
        left: processes that were left behind.
        output: of all ranks.
    """

    mark: dict[str, Any] | None = None
    reports: dict[int, Report] = field(default_factory=dict)
    hung: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    stacks: str = ""
    checkpoint: int = -1
    checkpoint_off: float = 0.0
    violations: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    output: str = ""


def run(case: Case) -> Outcome:
    """Run a case in a world of its own."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        with _disk(case, folder / "disk"):
            # On the disk that is filled.
            history = folder / ("disk" if case.fault.action is Action.DISK else "") / "history"
            return collected(case, folder, history, _run(case, folder, history))


def variables(case: Case, history: Path) -> dict[str, str]:
    """Environment of the ranks."""
    return {"PACELINE_HISTORY": str(history), **(ARMED if case.armed else {})}


def collected(case: Case, folder: Path, history: Path, found: Outcome) -> Outcome:
    """Add what the ranks have written to `folder` and to the history."""
    if (folder / MARK).exists():
        found.mark = json.loads((folder / MARK).read_text())
    for path in folder.glob("report.*.json"):
        report = msgspec.json.decode(path.read_bytes(), type=Report)
        found.reports[report.rank] = report
    found.checkpoint, found.checkpoint_off = _checkpoint(folder / CHECKPOINT, case)
    found.violations = _violations(history)
    return found


@contextlib.contextmanager
def _disk(case: Case, folder: Path) -> Iterator[None]:
    """The folder of checkpoints; a file system of its own if the fault fills it."""
    folder.mkdir()
    if case.fault.action is not Action.DISK:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True, timeout=20)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def _run(case: Case, folder: Path, history: Path) -> Outcome:
    victim, action = case.fault.victim, case.fault.action
    env = variables(case, history)
    frameworks: tuple[str, ...] = ("torch",)
    if case.framework == "keras":
        env["KERAS_BACKEND"] = case.backend
        frameworks = ("torch", "tensorflow")
    found = Outcome()
    world = World(case.size, env, frameworks)
    pids = [process.pid for process in world._processes]
    try:
        world.send(body.__name__, body.run.__name__, (case, str(folder)))
        answers: dict[int, tuple[str, Any]] = {}
        until_s = time.monotonic() + BEGIN_LIMIT_S
        while not (folder / MARK).exists() and len(answers) < case.size and time.monotonic() < until_s:
            answers |= world.answers(0.02, without=[*answers])
        if not (folder / MARK).exists():
            answers |= world.answers(5, without=[*answers])
        if action is Action.PAUSE:
            time.sleep(PAUSE_S)
            world.resume()
        gone = [victim] if action in (Action.KILL, Action.STOP) else []
        answers |= world.answers(HANG_LIMIT_S, HANG_LIMIT_S, without=[*answers, *gone])
        if action is Action.STOP:
            world.resume()
            answers |= world.answers(HANG_LIMIT_S, HANG_LIMIT_S, without=[*answers])
        ended = [*answers, *gone] if action is Action.KILL else [*answers]
        found.hung = sorted(set(range(case.size)) - set(ended))
        if found.hung:
            found.stacks = world.report(dict.fromkeys(ended, ("ok", None)), HANG_LIMIT_S)
        odd = {rank: f"{kind}: {value}\n" for rank, (kind, value) in answers.items() if kind != "ok"}
        found.output = "".join(
            f"--- rank {rank}\n{world._log(rank).read_text(errors='replace')}{odd.get(rank, '')}"
            for rank in range(case.size)
        )
        found.left = running(lambda pid, _: pid not in pids and os.getsid(pid) in pids)
    finally:
        world.end()
    found.left += running(lambda pid, _: os.getsid(pid) in pids)
    return found


def running(chosen: Callable[[int, str], bool]) -> list[str]:
    """Describe the processes, by number and command, for which `chosen` is true."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            command = " ".join(process.info["cmdline"] or ["?"])
            if process.status() != psutil.STATUS_ZOMBIE and chosen(process.pid, command):
                found.append(f"{process.pid}: {command}")
    return found


def _checkpoint(path: Path, case: Case) -> tuple[int, float]:
    """Load the last checkpoint; return its steps, and the largest difference of a weight from its expected value."""
    try:
        with np.load(path) as saved:
            steps = int(saved["steps"])
            weights = [saved[name] for name in saved.files if name != "steps"]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return -1, 0.0
    if case.exchange == "stages":  # the archive has checksums of its own
        return steps, 0.0
    return steps, off_from_expected(weights, case.size, steps)


def _violations(folder: Path) -> list[str]:
    try:
        results = check(folder)
    except UserError as error:
        return [] if not any(folder.glob("*")) else [f"{type(error).__name__}: {error}"]
    return [str(one) for result in results.by_check.values() for one in result.violations]
