"""The ranks of one system, which call when they are told to, together."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from paceline.examples.benchmarks.collectives import mpi_start
from paceline.examples.benchmarks.collectives.cases import Called, Case, Connected, Go, Here, Measure
from paceline.examples.benchmarks.collectives.systems import CollectiveSystem
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.crew import Crew, HasCrew
from paceline.examples.benchmarks.harness.crew_rank import log_path
from paceline.examples.benchmarks.harness.hosts import Hosts, Traffic
from paceline.examples.benchmarks.harness.team_run import per_step

CONNECT_LIMIT_S = 300.0
CALL_LIMIT_S = 300.0
# From the moment when all ranks are ready to their call: all of them must have heard of it and sleep.
_MARGIN_S, _MARGIN_PER_RANK_S = 1e-3, 0.5e-3


@dataclass(frozen=True)
class CallsRun:
    """One turn of a system: what each rank measured, and what each host's link carried per call."""

    ranks: list[Called]
    traffic: list[Traffic] | None

    @property
    def call_s(self) -> float:
        """From the first rank's call to the last rank's result; median over the calls."""
        begins = [min(times) for times in zip(*(rank.begin_s for rank in self.ranks))]
        ends = [max(times) for times in zip(*(rank.end_s for rank in self.ranks))]
        return median(end - begin for begin, end in zip(begins, ends))

    @property
    def message_s(self) -> float:
        """What the messages alone took on the slowest rank; median over the calls. A call, where that is all."""
        if not self.ranks[0].message_s:
            return self.call_s
        return median(max(times) for times in zip(*(rank.message_s for rank in self.ranks), strict=True))

    @property
    def cpu_s(self) -> float:
        """Processor time per call and rank."""
        used = [time_s for rank in self.ranks for time_s in rank.cpu_s]
        return sum(used) / len(used)

    @property
    def calls(self) -> int:
        """The number of calls."""
        return len(self.ranks[0].begin_s)


class Callers(HasCrew):
    """`size` ranks of `system` on `hosts`; a context manager that leaves no process behind.

    Entering starts and connects the ranks and stops them; `operations` says what they can call. Raises UserError as
    Crew.
    """

    def __init__(self, system: CollectiveSystem, size: int, hosts: Hosts) -> None:
        self.system = system
        self.operations: tuple[str, ...] = ()
        self.crew = Crew(system.name, size, hosts.names)
        self._hosts = hosts

    def _get_ready(self) -> None:
        (first, *_) = self.crew.answers(Connected, CONNECT_LIMIT_S)
        self.operations = first.operations

    def run(self, case: Case, calls: int, warm_up: bool = False) -> CallsRun:
        """Let the ranks make `calls` measured calls, with `warm_up` another one before, and stop them again."""
        self.crew.go_on()
        before = self._hosts.traffic()
        self.crew.send(Measure(case, calls, warm_up))
        for _ in range(calls):
            self.crew.answers(Here, CALL_LIMIT_S)
            self.crew.send(Go(time.monotonic() + _MARGIN_S + _MARGIN_PER_RANK_S * self.crew.size))
        measured = self.crew.answers(Called, CALL_LIMIT_S)
        self.crew.stop()
        return CallsRun(measured, per_step(before, self._hosts.traffic(), calls + warm_up))

    def _start(self, folder: str, control: str) -> Iterator[subprocess.Popen[bytes]]:
        names, addresses = self._hosts.names, self._hosts.addresses
        words = [sys.executable, "-m", "paceline.examples.benchmarks.collectives.rank"]
        env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.system.env}
        if self.system.by_mpirun:
            place = Place(-1, self.crew.size, names, addresses, folder, control)
            program = [*words, place.to_json(), self.system.setup]
            command = mpi_start.command(program, self.crew.size, names, log_path(folder, 0))
            yield self._hosts.start(command, 0, env)
            return
        for rank in range(self.crew.size):
            place = Place(rank, self.crew.size, names, addresses, folder, control)
            yield self._hosts.start([*words, place.to_json(), self.system.setup], place.host, env)
