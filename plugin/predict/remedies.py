"""Predicted gain of each remedy on a recorded step: merging, codecs, stale gradients, fewer ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from paceline.codecs.choice import EXACT
from paceline.core import _core
from paceline.core._core import CostModel
from paceline.fusion.from_trace import WARM_UP_STEPS
from paceline.fusion.gradient import Gradient
from paceline.fusion.halves import in_shares
from paceline.local.settings import Local
from paceline.predict.iteration import SEQUENTIAL, Iteration, communication_s, pipelined_s
from paceline.record.timed import timed_steps
from paceline.record.trace import Trace
from paceline.registry.codecs import CODECS
from paceline.registry.policies import OPTIMAL, THRESHOLD
from paceline.split.spans import spans, spans_of

# (cost of messages, armed) -> by policy, seconds from a step's first gradient to the end of its last message.
FinishOf = Callable[[CostModel, bool], Mapping[str, float]]
# Minimum gains. Stale or rounded gradients reduce stability at large learning rates, so a remedy with a price must gain
# more than the error of a prediction. Merging changes no result, and only needs a visible gain.
LEAST_GAIN = 0.05
SPLIT = "each rank updates its share of the parameters"
LEAST_MERGING_GAIN = 0.01
# Time of a rank's main thread to submit a gradient to Horovod and to wait for it (PyTorch, docs/guides/advise.md). The
# recorded computation includes it, and the local exchange does without.
SUBMISSION_S = 1e-4


@dataclass(frozen=True)
class Remedy:
    """A setting and its predicted step.

    Attributes:
        flags: flags of `paceline run`, "" for Horovod's own.
        step_s: seconds per step of `ranks` ranks.
        ranks: number of ranks.
        price: effect on training, "" for none.
    """

    flags: str
    step_s: float
    ranks: int
    price: str = ""

    @property
    def pace(self) -> float:
        """Batches of one rank per second."""
        return self.ranks / self.step_s if self.step_s > 0 else float("inf")


def remedies(
    iteration: Iteration,
    ranks: int,
    costs: CostModel,
    finish_of: FinishOf,
    late_s: float,
    armed: bool,
    own: CostModel | None = None,
    split: bool = False,
) -> Iterator[Remedy]:
    """Yield all settings, Horovod's own first; `by_pace` sorts them.

    `costs`: one message among `ranks` ranks without coordination; `own`: by Paceline's collectives, if known. `late_s`:
    `waits_for_others_s`. `armed`: plans may have armed steps. `split`: the framework has the split exchange.
    """
    compute_s = iteration.compute_s

    def steps(of: CostModel, arms: bool) -> dict[str, float]:
        return {policy: iteration.step_s(finish_s) for policy, finish_s in finish_of(of, arms).items()}

    exact = steps(costs, armed)
    yield Remedy("", exact[THRESHOLD], ranks)
    for policy, step_s in exact.items():
        if policy != THRESHOLD:
            # The policy optimal has armed steps by itself.
            arms = " --debug armed=yes" if armed and policy not in (SEQUENTIAL, OPTIMAL) else ""
            yield Remedy(f"--fusion {policy}{arms}", step_s, ranks)
    pipelined = "--exchange pipelined"
    late = "gradients are one step late"
    # While the gradients of a step are in flight, those of the next queue up: Horovod makes one message of them, or
    # computation is the longer part and start-ups do not matter.
    yield Remedy(pipelined, pipelined_s(iteration), ranks, late)
    for codec in (name for name, one in CODECS.items() if name != EXACT and one.suggested):
        share = CODECS[codec].wire_share
        rounded = f"gradients are rounded to {8 * 4 * share:.2g} bits, error feedback makes up for it"
        by_policy = steps(on_the_wire(own or costs, share), False)  # a message with a codec is never armed
        least_s = min(by_policy.values())
        near = [policy for policy, step_s in by_policy.items() if step_s <= least_s * (1 + LEAST_MERGING_GAIN)]
        policy = min(near, key=lambda one: (one != THRESHOLD, one != OPTIMAL, by_policy[one]))
        yield Remedy(f"--codec {codec} --fusion {policy}", by_policy[policy], ranks, rounded)
        encoded = dataclasses.replace(iteration, costs=on_the_wire(iteration.costs, share))
        yield Remedy(f"{pipelined} --codec {codec}", pipelined_s(encoded), ranks, f"{late}; {rounded}")
    if split:
        round_s = iteration.costs(0) - costs(0)
        split_step_s = split_s(iteration, half_of(own or costs), round_s, ranks)
        yield Remedy("--exchange split --fusion optimal", split_step_s, ranks, SPLIT)
    every = Local().sync_every
    local = f"models are averaged after every {every} updates of their own gradients"
    yield Remedy("--exchange local", local_s(iteration, every, late_s, SUBMISSION_S), ranks, local)
    if late_s > 0:
        step_s = max(compute_s, exact[THRESHOLD]) - late_s
        yield Remedy("--exchange majority", step_s, ranks, "late gradients are added to the next step's")
    count = ranks // 2
    while count >= 1:
        step_s = compute_s if count == 1 else steps(among(costs, ranks, count), False)[THRESHOLD]
        yield Remedy(f"-np {count}", step_s, count, f"a step has the batches of {count} of {ranks} ranks")
        count //= 2


def by_pace(found: Iterable[Remedy]) -> list[Remedy]:
    """Return Horovod's own first, then the others in descending order of pace; equal ones keep their order."""
    stock, *others = found
    return [stock, *sorted(others, key=lambda one: -one.pace)]


def best(found: Sequence[Remedy]) -> Remedy:
    """Recommend one of `remedies`: of similar ones, Horovod's own, then one without a price, then the simplest.

    Of equal policies it is `optimal`.
    """
    stock, *others = found
    free = _fastest([one for one in others if not one.price])
    if free is None or free.pace < (1 + LEAST_MERGING_GAIN) * stock.pace:
        free = stock
    priced = _fastest([one for one in others if one.price])
    return free if priced is None or priced.pace < (1 + LEAST_GAIN) * free.pace else priced


def _fastest(found: Sequence[Remedy]) -> Remedy | None:
    pace = max((one.pace for one in found), default=0.0)
    near = [one for one in found if one.pace * (1 + LEAST_MERGING_GAIN) >= pace]
    return min(near, key=lambda one: (one.flags.count("-"), OPTIMAL not in one.flags), default=None)


def local_s(iteration: Iteration, every: int, late_s: float = 0.0, submission_s: float = 0.0) -> float:
    """Return the step of the local exchange: ranks wait for each other, and for messages, only every `every` updates.

    `late_s`: the part of the computation that synchronous ranks lose to randomly late ranks. `submission_s`: the part
    that each submitted gradient takes.
    """
    alone_s = max(0.0, iteration.compute_s - late_s - submission_s * len(iteration.gradients))
    return alone_s + (communication_s(iteration) + iteration.compute_s - alone_s) / every


def on_the_wire(costs: CostModel, share: float) -> CostModel:
    """Return the cost of messages of which this share of the bytes is sent."""
    if costs.points:
        return CostModel.measured([(size / share, seconds) for size, seconds in costs.points])
    return CostModel.linear(costs.a_s, costs.b_s_per_byte * share)


def split_s(iteration: Iteration, halves: CostModel, round_s: float, ranks: int) -> float:
    """Return the step of the split exchange.

    Reduce-scatters overlap with the backward pass, all-gathers of new weights with the forward pass. `halves`: cost of
    a message of either kind, without coordination. Steps are armed: one round of `round_s`. The forward pass begins
    when the first all-gather has ended.
    """
    sizes = [one.bytes for one in iteration.gradients]
    # Gradients are in order of readiness; `spans` begins with the last of its arguments.
    buckets = [[len(sizes) - 1 - at for at in span] for span in spans(sizes[::-1], spans_of(ranks))]
    size_of = [float(sum(sizes[at] for at in bucket)) for bucket in buckets]
    ready_s = [max(iteration.gradients[at].ready_s for at in bucket) for bucket in buckets]
    types = [iteration.gradients[bucket[0]].type for bucket in buckets]
    groups = _core.plan_armed(size_of, ready_s, types, halves, round_s, _core.TOGETHER)
    reduced = _core.predict_armed(groups, size_of, ready_s, types, halves, round_s, _core.TOGETHER)
    gathers = [Gradient(f"{at}", int(size), 0.0) for at, size in enumerate(size_of)]
    late = in_shares(range(len(buckets)), gathers, halves)
    gathered = _core.predict_armed(late, size_of, [0.0] * len(buckets), types, halves, 0.0, _core.TOGETHER)
    back_s = max(iteration.l_back_s, reduced.finish_s)
    for_s = max(iteration.l_for_s + gathered.ends_s[0], gathered.finish_s)
    return iteration.l_up_s + back_s + for_s


def half_of(costs: CostModel) -> CostModel:
    """Return the cost of a reduce-scatter or an all-gather: half an allreduce."""
    if costs.points:
        return CostModel.measured([(size, seconds / 2) for size, seconds in costs.points])
    return CostModel.linear(costs.a_s / 2, costs.b_s_per_byte / 2)


def among(costs: CostModel, ranks: int, fewer: int) -> CostModel:
    """Return the cost among fewer ranks, as in a ring: 2 (p - 1) start-ups, and (p - 1) / p of the bytes twice."""
    start_up = (fewer - 1) / (ranks - 1)
    moved = (fewer - 1) / fewer / ((ranks - 1) / ranks)
    if costs.points:
        return CostModel.measured([(size, seconds * moved) for size, seconds in costs.points])
    return CostModel.linear(costs.a_s * start_up, costs.b_s_per_byte * moved)


def waits_for_others_s(recorded: Trace) -> float:
    """Seconds that a step loses because another rank is the slowest each time.

    That is the mean over the steps of the slowest rank's time, less the largest of the ranks' mean times: a rank that
    is always the slowest is waited for in any case. A rank's time is its step less its own waiting, on its own clock.
    Returns 0 where not all ranks have the same steps.
    """
    times = [
        {one.step.index: one.time_ms - one.waiting_ms for one in timed_steps(rank) if one.step.index >= WARM_UP_STEPS}
        for rank in recorded.ranks
    ]
    shared = set.intersection(*(set(one) for one in times)) if len(times) > 1 else set()
    if not shared:
        return 0.0
    slowest_ms = mean(max(one[step] for one in times) for step in shared)
    return max(0.0, slowest_ms - max(mean(one[step] for step in shared) for one in times)) / 1e3
