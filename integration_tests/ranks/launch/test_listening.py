"""Listening sockets of jobs: the table in docs/guides/security.md against all that the processes open."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.ranks.launch.test_rank import free_port
from integration_tests.support import tasks
from integration_tests.support.listening import VARIABLE, Socket, logged
from integration_tests.support.packages import ROOT
from integration_tests.support.preload import compiled
from integration_tests.support.processes import PACELINE, QUIET, written

PAGE = ROOT / "docs" / "guides" / "security.md"
LIMIT_S = 240.0

# Rank 0 prints where the job listens, when all ranks have been trained and none has ended.
_TRAIN = """
import json, os, sys
import torch
from torch import nn
import horovod.torch as hvd
from integration_tests.support.listening import open_now

def see():
    hvd.allreduce(torch.ones(1), name="all are here")
    if hvd.rank() == 0:
        print("OPEN", json.dumps(sorted(open_now(os.environ["LISTENS"]))), flush=True)
    hvd.allreduce(torch.ones(1), name="rank 0 has looked")

hvd.init()
"""
SYNC = _TRAIN + "see()\n"
STAGES = (
    _TRAIN
    + """
import paceline.torch
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
pipeline = paceline.torch.Pipeline(
    model, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1), loss=nn.functional.mse_loss, n_microbatches=2
)
pipeline.step(torch.ones(4, 4), torch.ones(4, 4))
pipeline.drain()
see()
pipeline.close()
"""
)
ELASTIC = (
    _TRAIN
    + """
@hvd.elastic.run
def train(state):
    see()

train(hvd.elastic.TorchState(nn.Linear(1, 1)))
"""
)
# horovod.run() itself, with a function in place of a command.
FUNCTION = f"""
def train():
{textwrap.indent(SYNC, "    ")}
if __name__ == "__main__":
    import horovod
    horovod.run(train, np=2)
"""

HOROVODRUN, STORE = "rendezvous of `horovodrun`, HTTP", "store of `horovod.run(function)`, HTTP"
HUB, RENDEZVOUS = "`paceline rank`, task of rank 0", "rendezvous of `paceline rank`, HTTP"
RANK, GLOO = "service of each elastic rank", "Gloo, each rank, a port for each other rank"
WATCH = "Paceline's watch over ranks, rank 0"
# Per kind of job: its services, by row of the table.
SERVICES = {
    "run": {HOROVODRUN, GLOO, WATCH},
    "stages": {HOROVODRUN, GLOO, WATCH},
    "rank": {HUB, RENDEZVOUS, GLOO, WATCH},
    "elastic": {HOROVODRUN, RANK, GLOO, WATCH},
    "function": {HOROVODRUN, STORE, GLOO, WATCH},
}
OF_THE_JOB = ("the job", "the rank")  # lifetimes; other sockets close within seconds


@dataclass(frozen=True)
class Row:
    lifetime: str
    one_host: str


def table() -> dict[str, Row]:
    """The page's table, by service without links."""
    lines = PAGE.read_text().split("## What listens where")[1].split("\n\n")
    rows = next(block for block in lines if block.startswith("| service |")).splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows)
    return {re.sub(r" \(\[.*?\]\(.*?\)\)", "", name): Row(lifetime, one) for name, lifetime, one, *_ in cells}


def service(socket: Socket, sockets: Sequence[Socket], hub_port: int) -> str:
    """The row of a socket, one of the job's."""
    if "Pair::listen" in socket.caller:
        return GLOO
    if "PeerWatch::Listen" in socket.caller:
        return WATCH
    assert socket.caller == "Python", socket
    if "paceline.launch.cli rank" in socket.command:
        return HUB if socket.port == hub_port else RENDEZVOUS
    stores = re.findall(r"horovod\.runner\.run_task \S+ (\d+)", " ".join(one.command for one in sockets))
    if stores:
        return STORE if str(socket.port) in stores else HOROVODRUN
    return HOROVODRUN if "horovodrun" in socket.command else RANK


@dataclass(frozen=True)
class Job:
    sockets: list[Socket]
    open: set[tuple[str, int]]


def started(folder: Path, commands: Sequence[Sequence[str]], env: Sequence[dict[str, str]]) -> Job:
    """Run the commands of one job to their end."""
    log = folder / "listens"
    shim = compiled(folder, ROOT / "integration_tests" / "support" / "log_listens.c")
    own = {"LD_PRELOAD": str(shim), VARIABLE: str(log), "PYTHONPATH": str(ROOT), **QUIET}
    running = [
        subprocess.Popen(list(words), env={**tasks.without_scheduler(inherited()), **own, **more},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words, more in zip(commands, env, strict=True)
    ]  # fmt: skip
    output = ""
    try:
        for one in running:
            output += one.communicate(timeout=LIMIT_S)[0]
    finally:
        for one in running:
            one.kill()
    assert [one.returncode for one in running] == [0] * len(running), output
    (seen,) = re.findall(r"OPEN (\[.*\])", output)
    return Job(logged(log), {(address, port) for address, port in json.loads(seen)})


def inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("HOROVOD_GLOO_IFACE", "LD_PRELOAD")}


def run(kind: str, folder: Path) -> tuple[Job, int]:
    """Run a job of this kind; return its sockets, and the port of `paceline rank`'s rank 0."""
    scripts = {"stages": STAGES, "elastic": ELASTIC, "function": FUNCTION}
    script = str(written(folder, scripts.get(kind, SYNC)))
    command = [sys.executable, script]
    if kind == "rank":
        port = free_port()
        words = [[*PACELINE, "rank", "--rank", str(rank), "--size", "3", "--rendezvous", f"localhost:{port}", "--",
                  *command] for rank in range(3)]  # fmt: skip
        return started(folder, words, [{}] * 3), port
    if kind == "function":
        return started(folder, [command], [{}]), 0
    more: list[str] = []
    if kind == "elastic":
        discovery = folder / "discover.sh"
        discovery.write_text("#!/bin/sh\necho localhost:2\n")
        discovery.chmod(0o755)
        more = ["--min-np", "2", "--host-discovery-script", str(discovery)]
    return started(folder, [[*PACELINE, "run", "-np", "2", *more, *command]], [{}]), 0


@pytest.mark.parametrize("kind", SERVICES)
def test_every_listening_socket_is_in_the_table_and_where_it_says(kind: str, tmp_path: Path) -> None:
    rows = table()
    job, hub_port = run(kind, tmp_path)
    found: dict[str, set[str]] = {}
    expected_open = set()
    for socket in job.sockets:
        name = service(socket, job.sockets, hub_port)
        found.setdefault(name, set()).add(socket.address)
        if rows[name].lifetime in OF_THE_JOB:
            expected_open.add((socket.address, socket.port))
    assert found == {name: {rows[name].one_host} for name in SERVICES[kind]}, job.sockets
    assert job.open == expected_open, "while ranks train"


def test_every_row_is_of_a_job_that_is_tested() -> None:
    tested = set().union(*SERVICES.values())
    assert {name for name, row in table().items() if row.one_host != "none"} == tested
