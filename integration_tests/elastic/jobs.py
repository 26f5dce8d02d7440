"""Runs elastic jobs, and checks what their ranks have written."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration_tests.elastic.schedule import COMMIT_EVERY, LEAST, MOST, STEPS, Change, Schedule
from integration_tests.support.arming import ARMED
from integration_tests.support.elastic_jobs import launcher
from integration_tests.support.processes import QUIET

ROOT = Path(__file__).resolve().parents[2]
JOB_LIMIT_S = 300.0
EXCHANGES = {
    "torch": ("sync", "armed", "pipelined", "majority", "local", "split"),
    "keras": ("sync", "pipelined", "majority", "local"),
}
# Exchanges under which no contribution is lost with a rank that leaves.
EXACT = ("sync", "armed", "pipelined", "split")
ROUNDING = 0.01  # Keras counts in float32
_ARMED = {"PACELINE_EXCHANGE": "sync", "PACELINE_FUSION": "optimal", **ARMED}
_MODULES = {"torch": "integration_tests.elastic.train_torch", "keras": "integration_tests.elastic.train_keras"}


@dataclass
class Run:
    """Result of one training: of rank 0, with everything that is wrong with it."""

    framework: str
    exchange: str
    schedule: Schedule
    accuracy: float = 0.0
    loss: float = 0.0
    count: float = 0.0
    expected: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def run(framework: str, exchange: str, schedule: Schedule, seeds: Sequence[int]) -> list[Run]:
    """Run a job that trains once for each seed; a schedule with events has one seed."""
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="elastic-") as name:
        folder = Path(name)
        (folder / "schedule.pickle").write_bytes(pickle.dumps(schedule))
        words = launcher(folder, schedule.hosts, LEAST, MOST, schedule.size)
        words += [sys.executable, "-m", _MODULES[framework], str(folder), *map(str, seeds)]
        problem = _finish(words, folder, _environment(framework, exchange))
        took_s = (time.monotonic() - begin_s) / len(seeds)
        runs = [Run(framework, exchange, schedule, took_s=took_s) for _ in seeds]
        for one, seed in zip(runs, seeds, strict=True):
            if problem:
                one.problems.append(problem)
            else:
                _judge(one, folder, seed)
    return runs


def _environment(framework: str, exchange: str) -> dict[str, str]:
    own = _ARMED if exchange == "armed" else {"PACELINE_EXCHANGE": exchange}
    return {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow", **own}


def _finish(words: list[str], folder: Path, env: dict[str, str]) -> str:
    """Run a job to its end; return what is wrong with that."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, env=env, stdout=output, stderr=output, start_new_session=True)
        try:
            status = process.wait(JOB_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            process.wait(30)
            return f"the job has not ended within {JOB_LIMIT_S:g} s\n{_end_of(folder)}"
    return f"the launcher ended with {status}\n{_end_of(folder)}" if status else ""


def _end_of(folder: Path) -> str:
    return (folder / "output").read_text(errors="replace")[-6000:]


def _judge(one: Run, folder: Path, seed: int) -> None:
    """Compare the results of all ranks, the ranks of all steps, and the number of contributions."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob(f"result.{seed}.*.json"))]
    events, wrong = one.schedule.events, one.problems
    size = events[-1].size if events else one.schedule.size
    if len(results) != size:
        wrong.append(f"{len(results)} ranks have finished, expected {size}")
        return
    one.accuracy, one.loss, one.count = (results[0][key] for key in ("accuracy", "loss", "count"))
    if max(abs(other["count"] - one.count) for other in results) > 1e-6 * one.count:
        wrong.append(f"ranks differ: {results}")
    made = {int(step): int(ranks) for step, ranks in map(str.split, (folder / "steps").read_text().splitlines())}
    if sorted(made) != list(range(STEPS)):
        wrong.append(f"{len(made)} steps were made, expected {STEPS}")
    one.expected = sum(made.values())
    lost = 0 if one.exchange in EXACT else _most_lost(one)
    if not one.expected - lost - ROUNDING <= one.count <= one.expected + ROUNDING:
        wrong.append(f"{one.count:g} contributions, expected {one.expected - lost} to {one.expected}")
    before = one.schedule.size
    for event in events:
        # The others may commit the step of a kill before they notice.
        right = (event.size, before) if event.change is Change.KILL else (event.size,)
        if made.get(event.step) not in right:
            wrong.append(f"step {event.step} was made by {made.get(event.step)} ranks, expected {event}")
        if event.change is Change.KILL and not (folder / f"killed.{event.step}").exists():
            wrong.append(f"the kill did not happen: {event}")
        before = event.size


def _most_lost(one: Run) -> int:
    """Most contributions that end with the ranks that have them: late ones, and updates since the last average."""
    since_average = 8  # the default of sync_every
    return len(one.schedule.events) * MOST * max(COMMIT_EVERY, since_average)
