"""One rank of one system: builds the network, connects to its peers, and steps when the controller says so.

python -m paceline.examples.benchmarks.harness.rank ASSIGNMENT
"""

from __future__ import annotations

import resource
import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from paceline.examples.benchmarks.harness import crew_rank
from paceline.examples.benchmarks.harness.assignment import Assignment, Measured, Ready, Run, WarmUp
from paceline.examples.benchmarks.harness.systems import Running

if TYPE_CHECKING:
    from paceline.examples.benchmarks.networks.network import Network

WARM_UP_STEPS = 3  # DDP rebuilds its buckets after the first step, Horovod's response cache is filled after it


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

    from paceline.examples.benchmarks.harness import systems
    from paceline.examples.benchmarks.networks import models
    from paceline.examples.benchmarks.networks.computing import ComputingNetwork
    from paceline.examples.benchmarks.networks.sleeping import SleepingNetwork

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
    """Serve the assignment until the controller closes."""
    assignment = Assignment.from_json(text)
    crew_rank.serve(assignment.rank, assignment.folder, assignment.control, lambda control: serve(assignment, control))


if __name__ == "__main__":
    main(sys.argv[1])
