"""Measure, plan, activate, watch: background work on merging by the first rank of a process set.

| state | waits for | then |
| --- | --- | --- |
| agreeing | every rank has reported the same policy | warming |
| warming | the first steps | requests a sweep of message sizes: sweeping |
| sweeping | the steps to measure | requests the measurement of all ranks: measuring |
| measuring | the answer | makes a plan and sends it: offering; if none can be made: refused |
| offering | the plan, or its end, is in force on all ranks | trying until that is over, then active, or stock; if it |
| | | is not in force after some steps: agreeing |
| trying | the steps of a window (trial.py) | sends the plan of the next window, finally of all steps: offering |
| active | the steps until the next check | requests a measurement: watching; if the plan is lost: agreeing |
| stock | as active, while the plan has lost against Horovod's own merging or promised too little | as active |
| watching | the answer | a new plan, if it pays: offering; otherwise active |
| refused | nothing: Horovod's own merging stays | agreeing, when the ranks request another policy |

In any state, ranks that no longer agree lead back to agreeing. The library executes control operations at the same
place in the sequence of operations on all ranks (bridge/fusion/control_op.h).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from paceline.core._core import CostModel
from paceline.errors import UserError
from paceline.fusion import costs
from paceline.fusion.bridge import Bridge, ControlOp, Measurement, Status
from paceline.fusion.gradient import Gradient
from paceline.fusion.halves import bytes_as_allreduce
from paceline.fusion.offer import Offer
from paceline.fusion.planning import Plan, make_plan, predict
from paceline.fusion.policies import Policy
from paceline.fusion.resolve import resolve
from paceline.fusion.trial import WINDOW_STEPS, WORTH_TRYING, Trial
from paceline.log import log
from paceline.record.trace import Costs
from paceline.registry.collectives import OWN
from paceline.registry.policies import BUILT_IN, FIXED, THRESHOLD

# Steps before the first measurement, in which memory is allocated and connections warm up.
FIRST_STEPS = 3
# Sizes of the sweep, and the number of messages of each. The last size is that of all gradients together, but at least
# the second of these: a line needs messages of two sizes, and a small model may send only one size by itself.
SWEEP = ((4 << 10, 3), (32 << 10, 3), (256 << 10, 3), (2 << 20, 2), (16 << 20, 1))
# Largest message of the sweep. Ranks keep two buffers of this size until the job ends, and the line goes on beyond it.
MOST_SWEEP_BYTES = 32 << 20
# Factor on these numbers while armed steps select their collective: each is tried three times (auto_choice.h). A trial
# has no message beside it, so a burst before the end of the trials would time messages one after another.
FAST_TIMES = len(OWN)
# Number of the smallest messages sent together, to measure the part of a start-up that does not overlap.
BURST = 16
# A new plan pays if it is expected to save this share of a step.
WORTH = 0.05
# Polls at which ranks may disagree before it is reported: their scripts may be at different places.
DISAGREEMENT_LOOKS = 100
# Number of attempts to fit costs to samples that are too similar, before planning is refused.
MOST_FITS = 5
# Steps after which a plan that was sent and is not in force is lost.
OFFER_STEPS = 50


class State(Enum):
    """States of the table above."""

    AGREEING = "agreeing"
    WARMING = "warming"
    SWEEPING = "sweeping"
    MEASURING = "measuring"
    OFFERING = "offering"
    TRYING = "trying"
    ACTIVE = "active"
    STOCK = "stock"
    WATCHING = "watching"
    REFUSED = "refused"


@dataclass(frozen=True)
class Limits:
    """Options of the same names (config.py), in seconds and steps."""

    warmup_steps: int
    watch_steps: int
    time_limit_s: float
    gate_timeout_s: float
    trial_steps: int = 0
    follow: bool = True


class Driver:
    """Driver of merging in one process set whose first rank is this one. `look` is called every few milliseconds."""

    def __init__(
        self,
        bridge: Bridge,
        process_set: int,
        policy: Policy,
        limits: Limits,
        serial: int,
        log: Callable[[str], None] = log,
    ) -> None:
        self.serial = serial
        self.state = State.AGREEING
        self.reason = ""
        self._bridge = bridge
        self._set = process_set
        self._policy = policy
        self._limits = limits
        self._log = log
        self._until = 0  # a number of steps, of an operation or of a plan, depending on the state
        self._version = 0
        self._looks = 0
        self._fits = 0
        self._offer_deadline = 0  # a number of steps
        self._reported_disagreement = False
        self._reported_fault = ""
        self._plan: Plan | None = None
        self._offered: Offer | None = None
        self._with_plan = False  # True if the plan, not Horovod's merging, was sent last
        self._could_arm = False  # True if a plan whose steps could be armed was in force
        self.trial: Trial | None = None
        self.costs: Costs | None = None
        self._where = "" if process_set == 0 else f" in process set {process_set}"

    def look(self) -> None:
        """Advance as far as possible without waiting."""
        status = self._bridge.status(self._set)
        if status is None or status.serial != self.serial:
            return
        if not (status.agreed and status.plans):
            self._disagree(status)
            return
        steps: dict[State, Callable[[Status], None]] = {
            State.AGREEING: self._agreeing,
            State.WARMING: self._warming,
            State.SWEEPING: self._sweeping,
            State.MEASURING: self._measuring,
            State.OFFERING: self._offering,
            State.TRYING: self._trying,
            State.ACTIVE: self._active,
            State.STOCK: self._active,
            State.WATCHING: self._watching,
        }
        if self.state is not State.REFUSED:
            steps[self.state](status)

    def _go(self, state: State, until: int) -> None:
        self.state, self._until = state, until

    def _disagree(self, status: Status) -> None:
        if self.state is not State.AGREEING:
            self._go(State.AGREEING, 0)
            self._looks = 0
            self.reason = ""
        self._looks += 1
        asked = self._bridge.agreement(self._set)
        if self._looks >= DISAGREEMENT_LOOKS and asked and not self._reported_disagreement:
            self._reported_disagreement = True
            self.reason = disagreement(asked, self._policy)
            self._log(f"{self.reason}{self._where}; Horovod's own merging is used. Give all ranks the same fusion.")

    def _agreeing(self, status: Status) -> None:
        self._looks = self._fits = 0
        self._reported_disagreement = False
        self.reason = ""
        self._go(State.WARMING, status.steps + FIRST_STEPS)

    def _warming(self, status: Status) -> None:
        if status.steps >= self._until:
            self._sweep(status)

    def _sweep(self, status: Status) -> None:
        plan = self._bridge.plan(self._set)
        total_bytes = sum(tensor.bytes for tensor in plan.tensors) if plan else 0
        most_bytes = min(total_bytes, status.threshold_bytes, MOST_SWEEP_BYTES)
        self._bridge.ask(self._set, ControlOp.SWEEP, sweep_sizes(most_bytes))
        if status.armed:
            self._bridge.ask(self._set, ControlOp.FAST_SWEEP, sweep_sizes(most_bytes, FAST_TIMES))
            self._bridge.ask(self._set, ControlOp.BURST, [float(SWEEP[0][0])] * BURST)
        self._go(State.SWEEPING, status.steps + self._limits.warmup_steps + 1)

    def _sweeping(self, status: Status) -> None:
        if status.steps >= self._until:
            self._go(State.MEASURING, self._bridge.ask(self._set, ControlOp.MEASURE))

    def _measuring(self, status: Status) -> None:
        measured = self._bridge.measurement(self._set, self._until)
        if measured is None:
            return
        if isinstance(measured, str) or measured.steps < 2:
            self._go(State.SWEEPING, status.steps + self._limits.warmup_steps)
            return
        try:
            model = self._fit(measured, status)
        except UserError as error:
            self._fits += 1
            if self._fits == MOST_FITS:
                self._refuse(error)
            else:
                self._sweep(status)
            return
        self.costs = costs_of(measured, model)
        if not self._limits.follow:
            self.reason = "Only measurements were asked for; Horovod's own merging is used."
            self._go(State.REFUSED, 0)
            return
        try:
            plan = self._make(measured, status, model)
        except UserError as error:
            self._refuse(error)
            return
        self._log(f"fusion={self._policy.name}{self._where}: {summary(plan, measured)}")
        self._offer(measured, model, plan, status, promise(plan, measured))

    def _refuse(self, error: UserError) -> None:
        self.reason = f"{error.problem} {error.remedy}"
        self._go(State.REFUSED, 0)
        self._log(f"fusion={self._policy.name}{self._where}: {self.reason} Horovod's own merging is used.")

    def _offering(self, status: Status) -> None:
        if status.version == self._until:
            if self.trial is not None and not self.trial.over:
                self._go(State.TRYING, 0)
            else:
                self._go(State.ACTIVE if self._with_plan else State.STOCK, status.steps + self._limits.watch_steps)
        elif status.steps >= self._offer_deadline:
            self._go(State.AGREEING, 0)

    def _lost(self, status: Status) -> bool:
        """Return True if the plan was lost because ranks disagreed for a moment, and start again."""
        if status.version == self._version:
            return False
        self._go(State.AGREEING, 0)
        return True

    def _trying(self, status: Status) -> None:
        if self._lost(status):
            return
        own, trial = self._bridge.own(self._set), self.trial
        assert trial is not None
        if own.steps < WINDOW_STEPS:
            return
        trial.add(own.step_s, own.steps)
        if not trial.over:
            self._send(status, trial.with_plan)
            return
        self._log(f"fusion={self._policy.name}{self._where}: {trial}.")
        if not trial.plan_stays:
            self._keep_stock(status, "was not ahead of it")
        elif self._with_plan:
            self._go(State.ACTIVE, status.steps + self._limits.watch_steps)
        else:
            self._send(status, True)

    def _active(self, status: Status) -> None:
        if self._lost(status):
            return
        if self._limits.watch_steps and status.steps >= self._until:
            self._go(State.WATCHING, self._bridge.ask(self._set, ControlOp.MEASURE))

    def _watching(self, status: Status) -> None:
        if self._lost(status):
            return
        measured = self._bridge.measurement(self._set, self._until)
        if measured is None:
            return
        self._go(State.ACTIVE if self._with_plan else State.STOCK, status.steps + self._limits.watch_steps)
        if isinstance(measured, str) or measured.steps < 2 or self._plan is None:
            return
        try:
            model = self._fit(measured, status)
            plan = self._make(measured, status, model)
        except UserError as error:
            fault = f"fusion={self._policy.name}{self._where}: {error.problem} {error.remedy} The last plan stays."
            if fault != self._reported_fault:
                self._reported_fault = fault
                self._log(fault)
            return
        if plan.named_groups == self._plan.named_groups:
            return
        armed_work_s = work_s(measured, model) if self._armed(status) else None
        now_s = predicted_s(self._plan.named_groups, measured, model, armed_work_s)
        new_s = plan.predicted[plan.policy].exposed_s
        gain_s = now_s - new_s
        if gain_s > WORTH * (measured.compute_s + now_s):
            self._log(f"fusion={self._policy.name}{self._where}: planned again, {summary(plan, measured)}")
            self._offer(measured, model, plan, status, promise(plan, measured))

    def _armed(self, status: Status) -> bool:
        """Return True if a plan's steps are expected to be armed.

        Once a plan that could be armed was in force, some of its steps must have been: messages may always need
        negotiation.
        """
        if not status.armed:
            return False
        report = self._bridge.armed()
        return not report.too_many_fallbacks and (report.steps > 0 or not self._could_arm)

    def _fit(self, measured: Measurement, status: Status) -> CostModel:
        """Fit the cost of a plan's messages.

        Armed steps use the fastest collective, and only sweeps by it, sent alone, measure its cost.
        """
        return costs.fit(fastest(measured.fast_sweeps) if status.armed else measured.samples)

    def _make(self, measured: Measurement, status: Status, model: CostModel) -> Plan:
        return make_plan(
            self._policy,
            regular(measured),
            model,
            coordination_s=measured.coordination_s,
            cycle_s=status.cycle_s,
            threshold_bytes=status.threshold_bytes,
            time_limit_s=self._limits.time_limit_s,
            # A rank has one buffer for all its process sets; only the plan of all ranks may require a larger one.
            max_group_bytes=0 if self._set == 0 else max(status.threshold_bytes, 1),
            armed=self._armed(status),
            work_s=work_s(measured, model),
            # Messages outside armed steps. Before the first plan all samples are.
            stock_costs=costs.fit(measured.sweeps if self._could_arm else measured.samples) if status.armed else model,
        )

    def _offer(self, measured: Measurement, model: CostModel, plan: Plan, status: Status, promise: float) -> None:
        """Activate a plan, or start its trial; `promise`: expected saving as a share of a step."""
        self._plan = plan
        self._offered = Offer.of(measured, model, plan, self._limits.gate_timeout_s)
        self.trial = None
        if self._limits.trial_steps and tried(self._policy):
            # The promise omits savings of armed steps if rounds are hidden behind the backward pass.
            if promise < WORTH_TRYING and not plan.armed:
                self._keep_stock(status, f"promises {promise:.1%} of a step, too little to be tried")
                return
            self.trial = Trial(self._limits.trial_steps)
        self._send(status, True)

    def _send(self, status: Status, with_plan: bool) -> None:
        """Make all ranks follow the plan, or merge as Horovod does."""
        assert self._offered is not None
        self._version = max(self._version, status.version) + 1
        self._bridge.ask(self._set, ControlOp.PLAN, self._offered.values(self._version, with_plan))
        self._with_plan = with_plan
        self._could_arm = self._could_arm or (with_plan and self._plan is not None and len(self._plan.groups) > 1)
        self._offer_deadline = status.steps + OFFER_STEPS
        self._go(State.OFFERING, self._version)

    def _keep_stock(self, status: Status, why: str) -> None:
        self.reason = f"The plan {why}; Horovod's own merging is used."
        if self._with_plan:
            self._send(status, False)
        else:
            self._go(State.STOCK, status.steps + self._limits.watch_steps)


def tried(policy: Policy) -> bool:
    """Return True if plans of a policy are compared with Horovod's own merging: plans that promise to be faster.

    "none", "single" and plans from files prescribe the merging.
    """
    return policy.name not in FIXED and not policy.keeps_order


def sweep_sizes(most_bytes: int, times_each: int = 1) -> list[float]:
    """Return the sizes of messages to time, in bytes, in ascending order, each `times_each` times as often."""
    most_bytes = max(most_bytes, SWEEP[1][0])
    sizes = [float(size) for size, times in SWEEP if size < most_bytes for _ in range(times_each * times)]
    return [*sizes, *[float(most_bytes)] * times_each]


def fastest(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the shortest time of each size: other samples may have used a collective on trial."""
    least: dict[float, float] = {}
    for size_bytes, seconds in samples:
        least[size_bytes] = min(seconds, least.get(size_bytes, seconds))
    return sorted(least.items())


def regular(measured: Measurement) -> list[Gradient]:
    """Return the tensors that every step has on every rank."""
    return [
        Gradient(tensor.name, bytes_as_allreduce(tensor.name, tensor.bytes), ready_s, type=tensor.type)
        for tensor, ready_s in zip(measured.tensors, measured.ready_s, strict=True)
        if ready_s is not None
    ]


def work_s(measured: Measurement, model: CostModel) -> float:
    """Return the time that each message adds, apart from its bytes, to other messages in flight.

    It is the additional time of a burst compared with one of its messages, divided by the number of the others.
    """
    burst = measured.burst[-BURST:]
    if len(burst) < 2:
        return 0.0
    size_bytes = burst[0][0]
    longer_s = max(seconds for _, seconds in burst) - model(size_bytes)
    return max(longer_s / (len(burst) - 1) - size_bytes * model.b_s_per_byte, 0.0)


def costs_of(measured: Measurement, model: CostModel) -> Costs:
    """Return the part of a measurement that a trace keeps."""
    return Costs(
        stock=tuple(measured.sweeps),
        armed=tuple(fastest(measured.fast_sweeps)),
        work_s=work_s(measured, model),
        coordination_s=max(0.0, measured.coordination_s),
    )


def predicted_s(groups: list[list[str]], measured: Measurement, model: CostModel, work_s: float | None = None) -> float:
    """Return a plan's expected exposed communication in seconds under new measured costs; `work_s` as in `predict`."""
    gradients = regular(measured)
    index_of = {gradient.name: index for index, gradient in enumerate(gradients)}
    kept = [[index_of[name] for name in group if name in index_of] for group in groups]
    missing = set(range(len(gradients))) - {index for group in kept for index in group}
    kept = [group for group in kept if group] + [[index] for index in sorted(missing)]
    kept.sort(key=lambda group: max(gradients[index].ready_s for index in group))
    return predict(kept, gradients, model, measured.coordination_s, work_s=work_s).exposed_s


def promise(plan: Plan, measured: Measurement) -> float:
    """Return the expected saving of a plan, as a share of a step under Horovod's own merging."""
    chosen, stock = plan.predicted[plan.policy], plan.predicted[THRESHOLD]
    stock_s = measured.compute_s + stock.exposed_s
    return (stock.exposed_s - chosen.exposed_s) / stock_s if stock_s else 0.0


def summary(plan: Plan, measured: Measurement) -> str:
    """Return one line with the plan and its expected gain."""
    chosen, stock = plan.predicted[plan.policy], plan.predicted[THRESHOLD]
    step_s, stock_s = measured.compute_s + chosen.exposed_s, measured.compute_s + stock.exposed_s
    gain = promise(plan, measured)
    compared = f"{abs(gain):.1%} {'below' if gain >= 0 else 'above'} Horovod's own merging ({1e3 * stock_s:.1f} ms)"
    messages = f"{chosen.messages} message{'' if chosen.messages == 1 else 's'}{', armed' if plan.armed else ''}"
    gradients = f"{len(plan.names)} gradient{'' if len(plan.names) == 1 else 's'}"
    return f"{gradients} in {messages}, expected step {1e3 * step_s:.1f} ms, {compared}."


def disagreement(asked: list[int | None], own: Policy) -> str:
    """Describe which rank requests which policy."""
    names: dict[int | None, str] = {resolve(name).digest: name for name in BUILT_IN if name != THRESHOLD}
    names |= {0: THRESHOLD, None: "nothing yet", own.digest: own.name}
    ranks: dict[str, list[int]] = {}
    for rank, digest in enumerate(asked):
        ranks.setdefault(names.get(digest, "another policy"), []).append(rank)
    parts = [f"{name} on rank {', '.join(map(str, there))}" for name, there in ranks.items()]
    return "The ranks ask for different policies: " + "; ".join(parts)
