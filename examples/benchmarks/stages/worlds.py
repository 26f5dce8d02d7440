"""The ranks of one library, a stage each, which train when they are told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.crew import Crew, HasCrew
from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.stages.cases import Case, Connected, Train, Trained
from paceline.examples.benchmarks.stages.systems import SETUPS

CONNECT_LIMIT_S = 300.0
TRAIN_LIMIT_S = 300.0


@dataclass(frozen=True)
class StagesRun:
    """One turn of a system: what each stage measured."""

    stages: list[Trained]

    @property
    def throughput(self) -> float:
        """Micro-batches per second."""
        wall_s = fmean([one.wall_s for one in self.stages])
        return self.stages[0].microbatches / wall_s

    @property
    def utilisation(self) -> float:
        """The share of time in which stages were busy, mean over them."""
        return fmean([one.busy_s / one.wall_s for one in self.stages])

    @property
    def passes_s(self) -> float:
        """What a forward and a backward pass took together, mean over stages."""
        return fmean([one.forward_s + one.backward_s for one in self.stages])

    @property
    def cpu_s(self) -> float:
        """Processor time per micro-batch and stage."""
        return fmean([one.cpu_s / one.microbatches for one in self.stages])

    @property
    def loss(self) -> float | None:
        """As the last stage knows it."""
        return self.stages[-1].loss


class World(HasCrew):
    """`size` ranks of `library` on `hosts`; a context manager that leaves no process behind.

    Entering starts and connects the ranks and stops them. Raises UserError as Crew.
    """

    def __init__(self, library: str, size: int, hosts: Hosts) -> None:
        self.library = library
        self.crew = Crew(library, size, hosts.names)
        self._hosts = hosts

    def _get_ready(self) -> None:
        self.crew.answers(Connected, CONNECT_LIMIT_S)

    def run(self, case: Case, schedule: str, steps: int) -> StagesRun:
        """Let the ranks train by `schedule`, `steps` measured steps, and stop them again."""
        self.crew.go_on()
        self.crew.send(Train(case, schedule, steps))
        trained = self.crew.answers(Trained, TRAIN_LIMIT_S)
        self.crew.stop()
        return StagesRun(trained)

    def _start(self, folder: str, control: str) -> Iterator[subprocess.Popen[bytes]]:
        env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        for rank in range(self.crew.size):
            place = Place(rank, self.crew.size, self._hosts.names, self._hosts.addresses, folder, control)
            words = [sys.executable, "-m", "paceline.examples.benchmarks.stages.rank", place.to_json()]
            yield self._hosts.start([*words, SETUPS[self.library]], place.host, env)
