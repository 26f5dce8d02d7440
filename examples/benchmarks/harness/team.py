"""The ranks of one system that trains a network: a crew (crew.py) that makes steps when told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

from paceline.examples.benchmarks.harness import warm_up
from paceline.examples.benchmarks.harness.assignment import Assignment, Measured, Ready, Run, WarmUp
from paceline.examples.benchmarks.harness.crew import Crew, HasCrew
from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.merging import Merging
from paceline.examples.benchmarks.harness.systems import System
from paceline.examples.benchmarks.harness.team_run import TeamRun, per_step

READY_LIMIT_S = 600.0
RUN_LIMIT_S = 120.0
SETTLE_STEPS = 1  # ranks continue at slightly different moments; one step brings them together


class Team(HasCrew):
    """`size` ranks of one system on `hosts`; a context manager that leaves no process behind.

    Entering starts and warms up the ranks and stops them. `step_s` is what a step took last. `tell` hears in a line
    what goes on while that lasts. Raises UserError with the output of the rank in question when one ends, and of all
    when one does not answer in time; also when a system that merges by plan comes to none.
    """

    def __init__(
        self, system: System, model: str, size: int, hosts: Hosts, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.system = system
        self.step_s = 0.0
        self._merging: list[Merging] = []
        self._tell = tell
        self._model = model
        self._size = size
        self._hosts = hosts
        self.crew = Crew(system.name, size, hosts.names)

    def _get_ready(self) -> None:
        self._until_active(self._ready(READY_LIMIT_S))

    def run(self, steps: int) -> TeamRun:
        """Let the ranks make `steps` measured steps and stop them again.

        Ranks that have begun to plan anew (their costs have changed) come to a plan before they are measured.
        """
        self.crew.go_on()
        if not all(one.active for one in self._merging):
            self._until_active([Ready(self.step_s, one) for one in self._merging])
        before = self._hosts.traffic()
        # Of gradients that travel during later steps, many arrived while the ranks were being stopped. Steps would not
        # wait for communication as in a long run until as much is on its way again, so this is brought about at once.
        run = Run(self.system.age, SETTLE_STEPS, steps)
        made = run.fill + run.settle + run.steps
        self.crew.send(run)
        measured = self.crew.answers(Measured, self._limit_s(made))
        self.crew.stop()
        after = self._hosts.traffic()
        done = TeamRun(steps, measured, per_step(before, after, made))
        self.step_s = done.step_ms / 1e3
        self._merging = warm_up.mergings(measured)
        warm_up.check_not_refused(self.system.name, self._merging)
        return done

    def _until_active(self, ready: list[Ready]) -> None:
        ready = warm_up.until_active(self.system.name, ready, self._warm_up, self._tell)
        self._merging = warm_up.mergings(ready)

    def _warm_up(self, order: WarmUp) -> list[Ready]:
        self.crew.send(order)
        return self._ready(self._limit_s(order.steps + order.check))

    def _ready(self, limit_s: float) -> list[Ready]:
        ready = self.crew.answers(Ready, limit_s)
        self.step_s = max(answer.step_s for answer in ready)
        return ready

    def _limit_s(self, steps: int) -> float:
        """How long `steps` steps may take. Generous: a machine that other work slows down tenfold is no failure."""
        return RUN_LIMIT_S + 10 * self.step_s * steps

    def _start(self, folder: str, control: str) -> Iterator[subprocess.Popen[bytes]]:
        for rank in range(self._size):
            assignment = Assignment(
                rank,
                self._size,
                self._hosts.names,
                self._hosts.addresses,
                folder,
                control,
                self.system.setup,
                self.system.averages,
                self.system.age,
                self._model,
            )
            argv = [sys.executable, "-m", "paceline.examples.benchmarks.harness.rank", assignment.to_json()]
            env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.system.env}
            yield self._hosts.start(argv, assignment.host, env)
