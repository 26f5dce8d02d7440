"""Cases whose ranks run on emulated hosts, one on each: a link is cut, or becomes slow. Needs root."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration_tests.faults.matrix import jobs
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.injector import ASKED, MARK
from integration_tests.faults.matrix.sentences import Action, Fault, Moment
from integration_tests.support.cluster import PACELINE_RANK, QUIET
from integration_tests.support.tasks import without_scheduler
from paceline.examples.benchmarks.cluster import Cluster
from paceline.examples.benchmarks.cluster.network import SWITCH

RATE, SLOW_RATE = "400mbit", "60mbit"
PORT = 29431
_EXCHANGES = ("sync", "armed", "pipelined", "partial", "local", "split", "stages")
_FAULTS = ((Action.CUT, Moment.MESSAGE), (Action.CUT, Moment.NEGOTIATION), (Action.SLOW, Moment.MESSAGE))
_SIZE = 3
# Note of `paceline rank` (launch/rank/command.py).
_LOST_RANK_0 = re.compile(r"was ended: it lost rank 0")


def cases() -> list[Case]:
    """Faults of links under each exchange of PyTorch."""
    return [
        Case(Fault(3 + number % 4, action, number % _SIZE, moment), exchange, "torch", "", _SIZE)
        for number, (exchange, (action, moment)) in enumerate(itertools.product(_EXCHANGES, _FAULTS))
    ]


def run(case: Case) -> jobs.Outcome:
    """Run a case on a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name, Cluster(hosts=case.size, rate=RATE) as cluster:
        folder = Path(name)
        (folder / "disk").mkdir()
        (folder / "case.pickle").write_bytes(pickle.dumps(case))
        processes = [_started(cluster, case, folder, rank) for rank in range(case.size)]
        try:
            found = _followed(cluster, case, folder, processes)
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                process.wait(10)
        return jobs.collected(case, folder, folder / "history", found)


def _started(cluster: Cluster, case: Case, folder: Path, rank: int) -> subprocess.Popen[Any]:
    words = ["--rank", str(rank), "--size", str(case.size), "--rendezvous", f"host0:{PORT}", "--"]
    script = [sys.executable, "-m", "integration_tests.faults.matrix.ranks", str(folder)]
    env = {**without_scheduler(dict(os.environ)), **QUIET, **jobs.variables(case, folder / "history")}
    with (folder / f"log.{rank}").open("wb") as log:
        return cluster.popen(
            [*PACELINE_RANK, *words, *script], host=rank, env=env, stdout=log, stderr=log, start_new_session=True
        )


def _followed(cluster: Cluster, case: Case, folder: Path, processes: list[subprocess.Popen[Any]]) -> jobs.Outcome:
    """Let the fault happen when the victim asks for it, and wait for the reports."""
    found = jobs.Outcome()

    def reported(ranks: list[int]) -> Callable[[], bool]:
        return lambda: all((folder / f"report.{rank}.json").exists() for rank in ranks)

    everyone = list(range(case.size))
    _wait(lambda: (folder / ASKED).exists() or reported(everyone)(), jobs.BEGIN_LIMIT_S)
    if (folder / ASKED).exists():
        facts = json.loads((folder / ASKED).read_text())
        if case.fault.action is Action.CUT:
            _set_link(cluster, case.fault.victim, "down")
        else:
            cluster.set_rate(case.fault.victim, SLOW_RATE)
        new = folder / f"{MARK}.new"
        new.write_text(json.dumps({**facts, "time_s": time.monotonic()}))
        new.rename(folder / MARK)
    survivors = [rank for rank in everyone if rank != case.fault.victim]
    _wait(reported(survivors), jobs.HANG_LIMIT_S)
    if case.fault.action is Action.CUT:
        _set_link(cluster, case.fault.victim, "up")
    _wait(lambda: all(reported([rank])() or processes[rank].poll() is not None for rank in everyone), jobs.HANG_LIMIT_S)
    silent = [rank for rank in everyone if not reported([rank])()]
    found.hung = [rank for rank in silent if processes[rank].poll() is None]
    for rank in found.hung:  # shows its stacks; `paceline rank` passes the signal on
        processes[rank].send_signal(signal.SIGUSR1)
    _wait(lambda: all(process.poll() is not None for process in processes), 30)
    found.left = [f"rank {rank}" for rank, process in enumerate(processes) if process.poll() is None]
    found.output = "".join(
        f"--- rank {rank}\n{(folder / f'log.{rank}').read_text(errors='replace')}" for rank in everyone
    )
    found.ended = [rank for rank in silent if _LOST_RANK_0.search((folder / f"log.{rank}").read_text(errors="replace"))]
    return found


def _set_link(cluster: Cluster, host: int, state: str) -> None:
    """Cut a link at the switch's end: the host's own interface notices nothing."""
    network = cluster._live()
    words = ["ip", "-n", network.namespace(SWITCH), "link", "set", network.names[host], state]
    subprocess.run(words, check=True, timeout=10)


def _wait(done: Callable[[], bool], limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while not done() and time.monotonic() < end_s:
        time.sleep(0.01)
