"""Cases of elastic jobs: ranks come and go, and a fault happens while the others form a new world.

A job begins with 4 ranks on 3 names of this machine. At a step one of the names goes; the ranks reset, and in that
reset the fault happens to the rank of another name. The job must end with the weights of one process.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from integration_tests.faults.matrix.cases import PAUSE_S, Case
from integration_tests.faults.matrix.injector import MARK
from integration_tests.faults.matrix.jobs import HANG_LIMIT_S, Outcome, running
from integration_tests.faults.matrix.sentences import Action, Fault, Moment
from integration_tests.faults.matrix.verdict import Verdict
from integration_tests.support.elastic_jobs import launcher
from integration_tests.support.processes import QUIET

STEPS, RATE = 12, 2.0**-6
VICTIM, SIZE = 2, 4
_LEFT = ("localhost:2", "127.0.0.1:1")
_ALL = (*_LEFT, f"{socket.gethostname()}:1")
_GLOO_LIMIT_S = 4
_JOB_LIMIT_S = 150.0
_EXCHANGES = ("sync", "pipelined", "split")
_ACTIONS = (Action.KILL, Action.PAUSE, Action.EXCEPTION)

_SCRIPT = f"""
import json, os, pathlib, signal, sys, time
import horovod.torch as hvd
import horovod.torch.elastic as elastic
import torch

STEPS, RATE, LEFT = {STEPS}, {RATE}, {_LEFT}
folder, action, due = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
connect, resets = elastic.init, 0

def connect_again(*arguments):
    global resets
    resets += 1
    mark = folder / "{MARK}"
    if resets == 1 and os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1" and not mark.exists():
        new = mark.with_suffix(".new")
        new.write_text(json.dumps({{"time_s": time.monotonic(), "process": os.getpid()}}))
        new.rename(mark)
        if action == "EXCEPTION":
            raise ValueError("the script of this rank is broken")
        os.kill(os.getpid(), signal.SIGKILL if action == "KILL" else signal.SIGSTOP)
    connect(*arguments)

elastic.init = connect_again
hvd.init()
model = torch.nn.Linear(3, 1, bias=False).double()
w = model.weight
torch.nn.init.zeros_(w)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=RATE), model.named_parameters())

def let_a_host_go(state):
    if hvd.rank() == 0:
        new = folder / "hosts.new"
        new.write_text("\\n".join(LEFT) + "\\n")
        new.replace(folder / "hosts")
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        time.sleep(0.05)
        state.check_host_updates()
    raise AssertionError("no host went")

@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        if state.step == due and hvd.size() == {SIZE}:
            let_a_host_go(state)
        optimizer.zero_grad()
        (w * (hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
        if hvd.rank() == 0:
            with (folder / "log").open("a") as log:
                print(state.step, hvd.size(), file=log)
        state.step += 1
        state.commit()

train(hvd.elastic.TorchState(model, optimizer, step=0))
rank = hvd.rank()
hvd.shutdown()
(folder / f"ended.{{rank}}").write_text(repr(w[0, 0].item()))
"""


def cases() -> list[Case]:
    """Faults in the reset of a job, under exchanges whose sums are exact."""
    return [
        Case(Fault(3 + number % 4, action, VICTIM, Moment.RESET), exchange, "torch", "", SIZE)
        for number, (exchange, action) in enumerate(itertools.product(_EXCHANGES, _ACTIONS))
    ]


def run(case: Case) -> tuple[Outcome, Verdict]:
    """Run and judge a job."""
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        folder = Path(name)
        found = _run(case, folder)
        if (folder / MARK).exists():
            found.mark = json.loads((folder / MARK).read_text())
        return found, _judged(folder, found)


def _run(case: Case, folder: Path) -> Outcome:
    script = folder / "script.py"
    script.write_text(_SCRIPT)
    words = [*launcher(folder, _ALL, 2, SIZE, SIZE), sys.executable, str(script)]
    words += [str(folder), case.fault.action.name, str(case.fault.step)]
    env = {**os.environ, **QUIET, "PACELINE_EXCHANGE": case.exchange}
    env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(_GLOO_LIMIT_S)
    found = Outcome()
    resumed = threading.Thread(target=_resume, args=(folder / MARK,), daemon=True)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, env=env, stdout=output, stderr=output, start_new_session=True)
        if case.fault.action is Action.PAUSE:
            resumed.start()
        try:
            if process.wait(_JOB_LIMIT_S):
                found.output = f"the launcher ended with {process.returncode}\n"
        except subprocess.TimeoutExpired:
            found.hung = [0]
        time.sleep(1.0)  # the launcher's last signals to ranks
        found.left = running(lambda _, command: f"{folder}/script.py" in command)
        _end(process, found.left)
    found.output += (folder / "output").read_text(errors="replace")
    return found


def _end(process: subprocess.Popen[bytes], left: list[str]) -> None:
    """End what is left of a job: its launcher, and ranks that have outlived it."""
    if process.poll() is None:
        process.kill()
        process.wait(10)
    for one in left:
        try:
            os.kill(int(one.partition(":")[0]), signal.SIGKILL)
        except ProcessLookupError:
            continue


def _resume(mark: Path) -> None:
    end_s = time.monotonic() + HANG_LIMIT_S
    while not mark.exists() and time.monotonic() < end_s:
        time.sleep(0.02)
    if mark.exists():
        time.sleep(PAUSE_S)
        os.kill(json.loads(mark.read_text())["process"], signal.SIGCONT)


def _judged(folder: Path, found: Outcome) -> Verdict:
    verdict = Verdict()
    wrong = verdict.problems
    if found.mark is None:
        wrong.append("the fault did not happen")
    if found.hung:
        wrong.append(f"the job did not end within {_JOB_LIMIT_S:g} s")
    if found.output.startswith("the launcher ended with"):
        wrong.append(found.output.partition("\n")[0])
    wrong += [f"process left behind: {one}" for one in found.left]
    weights = {path.name: float(path.read_text()) for path in folder.glob("ended.*")}
    if not {"ended.0", "ended.1"} <= set(weights):
        wrong.append(f"expected the ends of ranks 0 and 1 at least, found {sorted(weights)}")
    log = folder / "log"
    # A step that was made again, from the last commit, counts as it was made last.
    made = {int(step): int(size) for step, size in map(str.split, log.read_text().splitlines())} if log.exists() else {}
    expected = -RATE * sum((size + 1) / 2 for size in made.values())
    if sorted(made) != list(range(STEPS)):
        wrong.append(f"expected the steps from 0 to {STEPS - 1}, found {sorted(made)}")
    wrong += [f"{name}: expected {expected}, found {one}" for name, one in weights.items() if one != expected]
    return verdict
