"""One rank of one system: connects to its peers, and calls when the controller says so.

    python -m paceline.examples.benchmarks.collectives.rank PLACE SETUP

Where Open MPI starts the ranks, all of them get the same PLACE, and their numbers from it.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection

from paceline.examples.benchmarks.collectives import systems
from paceline.examples.benchmarks.collectives.cases import Called, Connected, Go, Here, Measure
from paceline.examples.benchmarks.collectives.systems import Caller, Calls
from paceline.examples.benchmarks.harness import crew_rank
from paceline.examples.benchmarks.harness.assignment import Place

MPI_RANK = "OMPI_COMM_WORLD_RANK"


def place_of(text: str, environ: Mapping[str, str]) -> Place:
    """This rank's place."""
    place = Place.from_json(text)
    return replace(place, rank=int(environ[MPI_RANK])) if place.rank < 0 else place


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _measure(calls: Calls, order: Measure, control: Connection) -> Called:
    """Raises EOFError when the controller is gone, ValueError for wrong results."""
    if order.warm_up:
        calls.fill()
        calls.call()
        calls.check()
    if calls.record is not None:
        calls.record(order.calls)
    begins, ends, cpu = [], [], []
    for _ in range(order.calls):
        calls.fill()
        control.send(Here())
        go = control.recv()
        assert isinstance(go, Go)
        time.sleep(max(0.0, go.at_s - time.monotonic()))
        used_s = _cpu_s()
        begins.append(time.monotonic())
        calls.call()
        ends.append(time.monotonic())
        cpu.append(_cpu_s() - used_s)
    calls.check()
    message_s = () if calls.recorded is None else tuple(calls.recorded())
    assert len(message_s) in (0, order.calls)
    return Called(tuple(begins), tuple(ends), tuple(cpu), message_s)


def _serve(caller: Caller, control: Connection) -> None:
    control.send(Connected(caller.operations))
    while True:
        try:
            order = control.recv()
            assert isinstance(order, Measure)
            control.send(_measure(caller.prepare(order.case), order, control))
        except EOFError:
            caller.leave()
            return


def main(text: str, setup: str) -> None:
    """Serve until the controller closes."""
    place = place_of(text, os.environ)
    crew_rank.serve(
        place.rank, place.folder, place.control, lambda control: _serve(systems.load(setup)(place), control)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
