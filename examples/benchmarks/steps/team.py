"""The ranks of one system that trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.system import System
from paceline.examples.benchmarks.harness.team import Team
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import count_for
from paceline.examples.benchmarks.steps import plans
from paceline.examples.benchmarks.steps.plans import Merging, Plan, Ready, WarmUp
from paceline.examples.benchmarks.steps.worker import Measured, Run

TURN_S = 1.5  # duration of one system's part of a turn
FEWEST_STEPS, MOST_STEPS = 3, 40
RUN_LIMIT_S = 120.0
SETTLE_STEPS = 1  # ranks continue at slightly different moments; one step brings them together
COUNTERS = ("coordination_rounds", "messages", "bytes")


class StepTeam(Team):
    """Ranks that are ready once their steps follow a plan, if the system plans. `take` is one turn.

    `log` gets a line about steps before measuring. Raises UserError as Team, and for a system that reaches no plan.
    """

    def __init__(self, system: System, size: int, hosts: Hosts, log: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(system, size, hosts)
        self.step_s = 0.0
        self._log = log
        self._age: int = system.options.get("age", 0)
        self._merging: list[Merging] = []

    def get_ready(self) -> None:
        """Bring all ranks to their plan."""
        self._until_active(self._ready(self.hello))

    def take(self) -> Turn:
        """Let the ranks make measured steps for TURN_S."""
        # Gradients used in later steps are in flight at both ends of a turn; more steps average this out.
        steps = count_for(TURN_S, self.step_s, FEWEST_STEPS, MOST_STEPS) * (1 + self._age)
        return self.run(steps)

    def run(self, steps: int) -> Turn:
        """Let the ranks make `steps` measured steps. Ranks that plan again first reach a plan."""
        if not all(one.plan for one in self._merging):
            self._until_active([Ready(self.step_s, one) for one in self._merging], self.ask)
        # Many gradients used in later steps arrived while the ranks were being stopped. Steps wait for communication as
        # in a long run only once as many are in flight again, so extra steps restore that at once.
        run = Run(self._age, SETTLE_STEPS, steps)
        made = run.fill + run.settle + run.steps
        measured: list[Measured] = self.ask(run, self._limit_s(made))
        self.step_s = fmean(one.wall_s for one in measured) / steps
        self._merging = [one.merging for one in measured if one.merging is not None]
        plans.check_not_refused(self.system.name, self._merging)
        plan = self._merging[0].plan if self._merging else None
        sent = None if self.sent_bytes is None else self.sent_bytes / made
        return Turn({**self.figures(measured), "sent_bytes": sent}, {} if plan is None else _details(plan))

    def figures(self, measured: Sequence[Measured]) -> dict[str, float | None]:
        """Return figures per step: means over ranks, counters of rank 0."""
        steps, first = measured[0].steps, measured[0]
        merging = first.merging
        plan = None if merging is None else merging.plan
        forecast = None if plan is None or self._age else plan.step_s / self.step_s
        return {
            "step_ms": self.step_s * 1e3,
            "cpu_ms": fmean(one.figures["cpu_s"] for one in measured) / steps * 1e3,
            "wakeups": fmean(one.figures["wakeups"] for one in measured) / steps,
            **{name: None if first.counters is None else first.counters[name] / steps for name in COUNTERS},
            "predicted_over_measured": forecast,
        }

    def _until_active(self, ready: list[Ready], ask: Any = None) -> None:
        def steps(order: WarmUp) -> list[Ready]:
            return self._ready((ask or self.order)(order, self._limit_s(order.steps + order.check)))

        ready = plans.until_active(self.system.name, ready, steps, self._log)
        self._merging = [one.merging for one in ready if one.merging is not None]

    def _ready(self, answers: list[Ready]) -> list[Ready]:
        self.step_s = max(answer.step_s for answer in answers)
        return answers

    def _limit_s(self, steps: int) -> float:
        # Generous: a slowdown by a factor of ten due to other work is not a failure.
        return RUN_LIMIT_S + 10 * self.step_s * steps


def _details(plan: Plan) -> dict[str, Any]:
    return {"plan": {**asdict(plan), "group_bytes": list(plan.group_bytes)}}
