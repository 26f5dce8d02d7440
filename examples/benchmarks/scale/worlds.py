"""The ranks of one system, which make steps or rest when they are told to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from paceline.errors import UserError
from paceline.examples.benchmarks.harness import warm_up
from paceline.examples.benchmarks.harness.assignment import Place, Ready, WarmUp
from paceline.examples.benchmarks.harness.crew import Crew, HasCrew
from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.scale.cases import PLAN_FILE, Case, Rest, Rested, Stepped, Steps
from paceline.examples.benchmarks.scale.systems import ScaleSystem
from paceline.fusion import plan_file

READY_LIMIT_S = 300.0
RUN_LIMIT_S = 120.0
# What Horovod calls the tensor `name` of an allreduce.
_OPERATION = "allreduce."


@dataclass(frozen=True)
class ScaleRun:
    """One turn of a system: what each rank measured. Figures are per step; None is what nobody counts."""

    ranks: list[Stepped]

    @property
    def steps(self) -> int:
        """How many were measured."""
        return self.ranks[0].steps

    @property
    def step_ms(self) -> float:
        """Wall clock, mean over ranks."""
        return fmean([one.wall_s for one in self.ranks]) * 1e3 / self.steps

    @property
    def background_ms(self) -> float:
        """Processor time of rank 0's background thread."""
        return self.ranks[0].background.cpu_s * 1e3 / self.steps

    @property
    def cpu_ms(self) -> float:
        """Processor time of all of rank 0's threads."""
        return self.ranks[0].process.cpu_s * 1e3 / self.steps

    @property
    def wakeups(self) -> float:
        """How often a thread of rank 0's was woken."""
        return self.ranks[0].process.wakeups / self.steps

    def counted(self, name: str) -> float | None:
        """A counter of rank 0."""
        counters = self.ranks[0].counters
        return None if counters is None else counters[name] / self.steps

    @property
    def coordination_ms(self) -> float | None:
        """Time in which something waited to travel and nothing did; median over the steps."""
        return self._of_messages(0)

    @property
    def message_ms(self) -> float | None:
        """Time in which messages travelled; likewise."""
        return self._of_messages(1)

    def _of_messages(self, place: int) -> float | None:
        # The least of all ranks: the rank that came last to a message did not wait for others.
        found = [sum(min(one[place] for one in ranks) for ranks in step) for step in self._steps]
        return 1e3 * median(found) if found else None

    @cached_property
    def _steps(self) -> list[list[tuple[tuple[float, float], ...]]]:
        """For each step, and each of its messages, what all ranks saw of it."""
        steps = list(zip(*(one.messages or () for one in self.ranks), strict=False))
        # The last message of the last step may not be written down yet.
        return [list(zip(*step, strict=False)) for step in steps[:-1] or steps]


class ScaleWorld(HasCrew):
    """`size` ranks of `system` on this machine; a context manager that leaves no process behind.

    Entering starts and connects the ranks, warms them up (until steps are armed, where the system has armed steps) and
    stops them. `step_s` is what a step took last. `tell` hears in a line what goes on. Raises UserError as Crew, and
    for steps that are not armed.
    """

    def __init__(
        self, system: ScaleSystem, case: Case, size: int, hosts: Hosts, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.system = system
        self.step_s = 0.0
        self.crew = Crew(system.name, size, hosts.names)
        self._case = case
        self._hosts = hosts
        self._tell = tell

    def run(self, steps: int) -> ScaleRun:
        """Let the ranks make `steps` measured steps, and stop them again."""
        self.crew.go_on()
        self.crew.send(Steps(steps))
        run = ScaleRun(self.crew.answers(Stepped, self._limit_s(steps)))
        self.crew.stop()
        self.step_s = run.step_ms / 1e3
        return run

    def rest(self, seconds: float) -> list[Rested]:
        """Let the ranks hand in nothing for so long, and stop them again."""
        self.crew.go_on()
        self.crew.send(Rest(seconds))
        rested = self.crew.answers(Rested, RUN_LIMIT_S + seconds)
        self.crew.stop()
        return rested

    def _get_ready(self) -> None:
        ready = self._ready(READY_LIMIT_S)
        try:
            warm_up.until_active(self.system.name, ready, self._warm_up, self._tell)
        except UserError as error:
            raise UserError(error.problem, "Measure the other systems: --systems uncached,cached,events.") from None

    def _warm_up(self, order: WarmUp) -> list[Ready]:
        self.crew.send(order)
        return self._ready(self._limit_s(order.steps))

    def _ready(self, limit_s: float) -> list[Ready]:
        ready = self.crew.answers(Ready, limit_s)
        self.step_s = max(answer.step_s for answer in ready)
        return ready

    def _limit_s(self, steps: int) -> float:
        # Generous: a machine that other work slows down tenfold is no failure.
        return RUN_LIMIT_S + 10 * self.step_s * steps

    def _start(self, folder: str, control: str) -> Iterator[subprocess.Popen[bytes]]:
        groups = [[f"{_OPERATION}{name}" for name in part] for part in self._case.names]
        plan_file.write(Path(folder) / PLAN_FILE, self.system.name, groups)
        place = Place(-1, self.crew.size, self._hosts.names, self._hosts.addresses, folder, control)
        words = [sys.executable, "-m", "paceline.examples.benchmarks.scale.forks", place.to_json()]
        env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.system.variables(folder)}
        yield self._hosts.start([*words, json.dumps(asdict(self._case)), self.system.name], 0, env)
