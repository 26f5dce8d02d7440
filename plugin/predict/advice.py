"""Step times of all settings on one recorded run, at the network's own bandwidth and at any other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline import common_settings
from paceline.core import _core
from paceline.core._core import CostModel
from paceline.fusion import costs as cost_models
from paceline.fusion.from_trace import Measurements, measure
from paceline.fusion.planning import Plan, make_plan
from paceline.fusion.resolve import resolve
from paceline.predict.iteration import Iteration
from paceline.predict.recorded import RecordedIteration, of_trace
from paceline.predict.remedies import Remedy, by_pace, remedies, waits_for_others_s
from paceline.record.timed import midmean
from paceline.record.trace import Trace
from paceline.registry.policies import OPTIMAL, THRESHOLD

# Horovod's defaults.
CYCLE_S = 1e-3
THRESHOLD_BYTES = common_settings.THRESHOLD_BYTES
TORCH = "torch"
LOCAL = "local"
# Settings with Horovod's own messages at the end of a step.
HOROVODS_MERGING = ("", "--exchange majority")


@dataclass(frozen=True)
class StepModel:
    """Facts of a recorded run about its steps.

    Attributes:
        recorded: iteration and times of the recorded steps.
        measured: measurements in the trace.
        stock: cost of a message by Horovod's collective, without coordination.
        own: cost of a message by the fastest of Paceline's collectives, without coordination.
        coordination_s: time of one of Horovod's coordination rounds.
        events_s: time of a round with coordination by events.
        work_s: time that a message adds to others in flight.
        late_s: time that a step loses because the slowest rank changes.
        busy_s: time that the processors of the busiest machine need for a step.
        replayed_s: predicted step of stock Horovod with the messages of the recorded run, which depend on chance, too.
        split: the framework has the split exchange.
        cycle_s: Horovod's cycle time.
        threshold_bytes: Horovod's fusion threshold.
    """

    recorded: RecordedIteration
    measured: Measurements
    stock: CostModel
    own: CostModel
    coordination_s: float
    events_s: float
    work_s: float
    late_s: float
    busy_s: float
    replayed_s: float
    split: bool
    cycle_s: float = CYCLE_S
    threshold_bytes: int = THRESHOLD_BYTES

    @property
    def step_s(self) -> float:
        """Median step of the recorded run."""
        return self.recorded.step_s

    @property
    def stock_s(self) -> float:
        """Predicted step of Horovod's own merging, with which the run was recorded."""
        return max(self.replayed_s, self.busy_s)

    @property
    def error(self) -> float:
        """Relative error of the prediction of the recorded step."""
        return self.stock_s / self.step_s - 1 if self.step_s > 0 else 0.0

    def remedies(self, slower: float = 1.0) -> list[Remedy]:
        """Return all settings with predicted steps, Horovod's own first, if each byte takes `slower` times as long."""
        at = self if slower == 1.0 else self._slowed(slower)
        ranks = at.measured.ranks
        iteration = at.recorded.iteration
        found = by_pace(
            remedies(iteration, ranks, at.stock, at.finish_of, at.late_s, armed=True, own=at.own, split=at.split)
        )
        # `remedies` simulates Horovod's messages. The error is assumed to be that in the recorded network.
        simulated_s = self.recorded.iteration.step_s(self.finish_of(self.stock, False)[THRESHOLD])
        off_s = self.replayed_s - simulated_s
        found = [replace(one, step_s=one.step_s + off_s) if one.flags in HOROVODS_MERGING else one for one in found]
        return [at._not_faster_than_processors(one) if one.ranks == ranks else one for one in found]

    def _not_faster_than_processors(self, one: Remedy) -> Remedy:
        """Apply the bound of processors, which hidden communication uses, too; unknown for ranks that seldom send."""
        return one if LOCAL in one.flags else replace(one, step_s=max(one.step_s, self.busy_s))

    def plan(self, policy: str) -> Plan:
        """Return the plan of a policy, with the times of its messages."""
        return self._plan(self.stock, policy, armed=policy == OPTIMAL)

    def finish_of(self, costs: CostModel, armed: bool) -> dict[str, float]:
        """Return the end of a step's messages in seconds, by policy; armed plans use Paceline's own collectives."""
        predicted = self._plan(costs, OPTIMAL, armed).predicted
        return {name: one.finish_s for name, one in predicted.items()}

    def _plan(self, costs: CostModel, policy: str, armed: bool) -> Plan:
        """Return a plan; armed messages use Paceline's own collective, after a round that begins with an event."""

        def made(name: str, of: CostModel, round_s: float) -> Plan:
            return make_plan(
                resolve(name),
                self.measured.gradients,
                of,
                coordination_s=round_s,
                cycle_s=self.cycle_s,
                threshold_bytes=self.threshold_bytes,
                armed=armed,
                work_s=self.work_s,
            )

        if not armed:
            return made(policy, costs, self.coordination_s)
        plan = made(policy, self.own, self.events_s)
        stock = made(THRESHOLD, costs, self.coordination_s).predicted[THRESHOLD]
        return replace(plan, predicted={**plan.predicted, THRESHOLD: stock})

    def _slowed(self, slower: float) -> StepModel:
        stock, own = _slowed(self.stock, slower), _slowed(self.own, slower)
        iteration = self.recorded.iteration
        costs = stock.plus(self.coordination_s)
        slowed = Iteration(iteration.l_up_s, iteration.l_for_s, iteration.l_back_s, iteration.gradients, costs)
        return replace(self, recorded=replace(self.recorded, iteration=slowed), stock=stock, own=own)


def model_of(trace: Trace, cycle_s: float = CYCLE_S, threshold_bytes: int = THRESHOLD_BYTES) -> StepModel | None:
    """Return the model of a run that was recorded with Horovod's own merging; None if no step has a time.

    Raises UserError if the trace has too few steps, no tensor that is reduced in every step, or messages of only one
    size and no measured costs.
    """
    measured = measure(trace, cycle_s)
    costs = trace.costs
    stock = cost_models.fit(measured.samples if costs is None else (*measured.samples, *costs.stock))
    own = stock if costs is None or not costs.armed else cost_models.fit(costs.armed)
    recorded = of_trace(trace, measured, stock.plus(measured.coordination_s))
    if recorded is None:
        return None
    replayed_s = _replayed_s(trace, measured, stock.plus(measured.coordination_s))
    return StepModel(
        recorded,
        measured,
        stock,
        own,
        measured.coordination_s,
        # A round with events has as many hops as a small message.
        min(measured.coordination_s, own.a_s),
        0.0 if costs is None else costs.work_s,
        waits_for_others_s(trace),
        trace.busy_share * recorded.step_s,
        recorded.iteration.step_s(replayed_s),
        split=all(rank.library == TORCH for rank in trace.ranks),
        cycle_s=cycle_s,
        threshold_bytes=threshold_bytes,
    )


def _replayed_s(trace: Trace, measured: Measurements, costs: CostModel) -> float:
    """Return the midmean of a step's finish at modelled costs, with the recorded groups of gradients."""
    number = {one.name: at for at, one in enumerate(measured.gradients)}
    sizes = [float(one.bytes) for one in measured.gradients]
    ready_s = [one.ready_s for one in measured.gradients]
    types = [one.type for one in measured.gradients]
    found: list[float] = []
    rank = trace.ranks[0]
    for step in rank.steps:
        names = [[rank.tensors[tensor].name for tensor in one.tensors] for one in step.collectives]
        groups = [group for those in names if (group := [number[name] for name in those if name in number])]
        if sorted(member for group in groups for member in group) == list(range(len(sizes))):
            found.append(_core.predict(groups, sizes, ready_s, types, costs).finish_s)
    return midmean(found) if found else measured.finish_s


def _slowed(costs: CostModel, slower: float) -> CostModel:
    return CostModel.linear(costs.a_s, costs.b_s_per_byte * slower)
