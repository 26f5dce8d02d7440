"""One rank of one system: builds the network, connects to its peers, and steps when the controller says so.

    python -m paceline.launch.benchmarks.rank ASSIGNMENT

It ends with the controller: nothing may stay behind, not even a rank that is stopped when the controller dies.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.launch.benchmarks.assignment import Assignment, Hello, Measured, Ready, Run, WarmUp
from paceline.launch.benchmarks.systems import Running

if TYPE_CHECKING:
    from paceline.launch.benchmarks.network import Network

WARM_UP_STEPS = 3  # DDP rebuilds its buckets after the first step, Horovod's response cache is filled after it
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def log_path(folder: str, rank: int) -> Path:
    """Where a rank's output goes."""
    return Path(folder) / f"rank{rank}.log"


def _redirect_output(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _end_with_controller() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _measure(running: Running, network: Network, run: Run) -> Measured:
    network.hurried = True
    for _ in range(run.fill):
        running.step()
    network.hurried = False
    for _ in range(run.settle):
        running.step()
    counted = running.counters()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    begin_s = time.monotonic()
    for _ in range(run.steps):
        running.step()
    end_s = time.monotonic()
    usage_end = resource.getrusage(resource.RUSAGE_SELF)
    counted_end = running.counters()
    return Measured(
        wall_s=end_s - begin_s,
        cpu_s=usage_end.ru_utime - usage.ru_utime + usage_end.ru_stime - usage.ru_stime,
        wakeups=usage_end.ru_nvcsw - usage.ru_nvcsw,
        counters=None
        if counted is None or counted_end is None
        else {name: counted_end[name] - counted[name] for name in counted},
        merging=running.merging(),
    )


def _checked_step(running: Running, network: Network, assignment: Assignment) -> None:
    network.mark(assignment.rank)
    for _ in range(assignment.age):
        running.step()
        network.check_not_yet(assignment.size)
    running.step()
    network.check_mean(assignment.size)


def _warm_up(running: Running, steps: int) -> Ready:
    for _ in range(steps):
        begin_s = time.monotonic()
        running.step()
        step_s = time.monotonic() - begin_s
    return Ready(step_s, running.merging())


def serve(assignment: Assignment, control: Connection) -> None:
    """Set the system up and warm up, then do what the controller says until it closes: `WarmUp` is answered with
    `Ready`, `Run` with `Measured`.
    """
    import torch

    from paceline.launch.benchmarks import models, systems
    from paceline.launch.benchmarks.computing import ComputingNetwork
    from paceline.launch.benchmarks.sleeping import SleepingNetwork

    torch.set_num_threads(1)
    model = models.find(assignment.model)
    network = ComputingNetwork(assignment.rank) if model.computes else SleepingNetwork(model)
    running = systems.load(assignment.setup)(network, assignment)
    if assignment.averages:
        _checked_step(running, network, assignment)
    control.send(_warm_up(running, WARM_UP_STEPS))
    while True:
        try:
            order = control.recv()
        except EOFError:
            return
        if isinstance(order, Run):
            control.send(_measure(running, network, order))
            continue
        assert isinstance(order, WarmUp)
        ready = _warm_up(running, order.steps)
        if order.check and assignment.averages:
            _checked_step(running, network, assignment)
        control.send(ready)


def main(text: str) -> None:
    """Serve the assignment, then leave without the goodbyes of communication libraries: peers may be stopped."""
    _end_with_controller()
    assignment = Assignment.from_json(text)
    _redirect_output(log_path(assignment.folder, assignment.rank))
    with Client(assignment.control, "AF_UNIX") as control:
        control.send(Hello(assignment.rank, os.getpid()))
        serve(assignment, control)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
