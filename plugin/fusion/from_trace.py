"""Planner input from a trace that `paceline record` wrote: gradients, the cost of a message, coordination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paceline.errors import UserError
from paceline.fusion.gradient import Gradient
from paceline.record import trace
from paceline.record.timed import midmean
from paceline.record.trace import Collective, RankTrace, Step, Tensor, Trace

ALLREDUCE = "allreduce"
WARM_UP_STEPS = 3  # in which connections are made and caches filled
MOST_STEPS = 200  # number of latest steps in use; more do not improve a median
NEARLY_ALL = 0.9  # share of the steps; a tensor in fewer steps is not planned for
METRIC_BYTES = 64  # limit for an average of a loss, which is not a gradient
FEW_SAMPLES = 5
RECORD_MORE = "Record a script of at least five steps: `paceline record -np 2 python train.py`."


@dataclass(frozen=True)
class Measurements:
    """Measurements in a trace.

    Attributes:
        gradients: gradients in order of readiness.
        samples: messages as (bytes, seconds).
        coordination_s: time of one coordination round.
        left_out: tensors that are not planned for -> reason.
        steps: number of steps in use.
        ranks: size of the world.
        finish_s: time from the first gradient of a step to the end of the last message with gradients, midmean over
            steps and ranks; comparable with a plan's.
        messages: median number of messages with gradients.
        exposed_s: time from the last gradient to the end of the last message, midmean over steps, on the rank that
            comes last in each step; the other ranks wait for it meanwhile.
        coordination_known: False if the trace does not determine `coordination_s`, which is 0 then.
    """

    gradients: tuple[Gradient, ...]
    samples: tuple[tuple[float, float], ...]
    coordination_s: float
    left_out: dict[str, str]
    steps: int
    ranks: int
    finish_s: float
    messages: float
    exposed_s: float
    coordination_known: bool = True


def load(path: Path) -> Trace:
    """Read the trace in `path`, or the ranks' own files next to it if it does not exist. Raises UserError."""
    parts = trace.parts(path)
    if path.exists() or not parts:
        return trace.load(path)
    try:
        return trace.merge([trace.load(part) for part in parts])
    except ValueError as error:
        raise UserError(
            f"The ranks' traces {', '.join(part.name for part in parts)} do not belong together: {error}.",
            "They come from different runs: remove them and record again.",
        ) from None


def measure(recorded: Trace, cycle_s: float) -> Measurements:
    """Return readiness, costs and coordination from a trace.

    `cycle_s` is Horovod's cycle time during the recording: a message that finds the thread idle waits half of it on
    average, which does not count as coordination. Raises UserError if there are fewer than two steps, or no tensor that
    is reduced in every step.
    """
    ranks = [_Rank(one) for one in recorded.ranks]
    steps = max((len(rank.trace.steps) for rank in ranks), default=0)
    if steps < 2:
        found = "one step only" if steps else "no step: nothing was all-reduced"
        raise UserError(f"The trace has {found}, so there is nothing to plan from.", RECORD_MORE)
    known = _known(ranks)
    main_set = _main_set(known.values())
    left_out: dict[str, str] = {}
    names = _planned(ranks, known, main_set, left_out)
    if not names:
        raise UserError(
            "The trace has no tensor that is all-reduced in every step.",
            "Record a script whose every step calls allreduce, as DistributedOptimizer does. " + RECORD_MORE,
        )
    messages = _messages(ranks, main_set)
    coordination_s = _coordination_s(messages, cycle_s)
    if recorded.costs is not None:
        coordination_s = _shorter_s(recorded.costs.coordination_s, coordination_s)
    return Measurements(
        _gradients(ranks, names),
        tuple((float(one.size_bytes), one.duration_s) for one in messages if one.size_bytes > 0),
        max(0.0, coordination_s or 0.0),
        left_out,
        max(len(rank.steps) for rank in ranks),
        recorded.size,
        *_measured(ranks, names),
        coordination_known=coordination_s is not None and coordination_s >= 0,
    )


class _Rank:
    """The steps in use of one rank's trace, and the tensors reduced in them by name."""

    def __init__(self, one: RankTrace) -> None:
        self.trace = one
        last = one.steps[-1].index if one.steps else 0
        self.steps = [step for step in one.steps if step.index >= min(WARM_UP_STEPS, last)][-MOST_STEPS:]
        reduced = {tensor for step in self.steps for tensor in _reduced(step)}
        self.tensors = {one.tensors[number].name: one.tensors[number] for number in sorted(reduced)}
        # For each step, the arrival times of the tensors reduced in it, by name.
        self.arrivals = [
            {one.tensors[each.tensor].name: each.time_s for each in step.arrivals if each.tensor in reduced_here}
            for step in self.steps
            for reduced_here in [_reduced(step)]
        ]

    def collectives_of(self, step: Step, names: set[str]) -> list[Collective]:
        """Return the step's messages with any tensor of `names`."""
        tensors = self.trace.tensors
        return [one for one in step.collectives if any(tensors[number].name in names for number in one.tensors)]


def _reduced(step: Step) -> set[int]:
    return {tensor for one in step.collectives if one.kind == ALLREDUCE for tensor in one.tensors}


# Selection of the tensors to plan for.


def _known(ranks: Sequence[_Rank]) -> dict[str, Tensor]:
    """Return every tensor that is reduced, by name."""
    return {name: tensor for rank in ranks for name, tensor in rank.tensors.items()}


def _main_set(tensors: Iterable[Tensor]) -> int:
    """Return the process set that reduces most bytes; plans are made only for it, because sets may overlap in time."""
    bytes_of: dict[int, int] = {}
    for tensor in tensors:
        bytes_of[tensor.process_set] = bytes_of.get(tensor.process_set, 0) + tensor.size_bytes
    return max(bytes_of, key=lambda number: (bytes_of[number], -number), default=0)


def _planned(ranks: Sequence[_Rank], known: dict[str, Tensor], main_set: int, left_out: dict[str, str]) -> set[str]:
    """Return the names of the gradients; add the others to `left_out` with the reason."""
    names = set()
    shares = _shares_of_steps(ranks)
    for name, tensor in known.items():
        if tensor.process_set != main_set:
            left_out[name] = f"of process set {tensor.process_set}; planned for is set {main_set}, which reduces most"
        elif shares[name] < NEARLY_ALL:
            left_out[name] = f"in {shares[name]:.0%} of the steps only"
        else:
            names.add(name)
    for name in _metrics(ranks, names, known):
        names.remove(name)
        left_out[name] = "handed in after all gradients had been reduced, as a metric is"
    return names


def _shares_of_steps(ranks: Sequence[_Rank]) -> dict[str, float]:
    """Return each tensor's smallest share of a rank's steps in which it arrived, over ranks of its process set."""
    shares: dict[str, float] = {}
    for rank in ranks:
        counts = Counter(name for arrivals in rank.arrivals for name in arrivals)
        for name in rank.tensors:
            shares[name] = min(shares.get(name, 1.0), counts[name] / len(rank.steps))
    return shares


def _metrics(ranks: Sequence[_Rank], names: set[str], known: dict[str, Tensor]) -> set[str]:
    """Return small tensors at the end of a step that wait for all earlier ones: their readiness depends on the plan."""
    found: set[str] = set()
    small = {name for name in names if known[name].size_bytes <= METRIC_BYTES}
    while candidates := {_last(rank, names - found) for rank in ranks}:
        name = candidates.pop()
        if candidates or name not in small or not all(_waits(rank, name, names - found) for rank in ranks):
            break
        found.add(name)
    return found if found != names else set()


def _last(rank: _Rank, names: set[str]) -> str | None:
    """Return the tensor that most often arrives last."""
    counts: Counter[str] = Counter()
    for every in rank.arrivals:
        arrivals = {name: time_s for name, time_s in every.items() if name in names}
        if arrivals:
            counts[max(arrivals, key=lambda name: arrivals[name])] += 1
    return counts.most_common(1)[0][0] if counts else None


def _waits(rank: _Rank, name: str, names: set[str]) -> bool:
    """Return True if the tensor arrives after the messages of all other `names` have ended, in nearly all steps."""
    others = names - {name}
    steps = waits = 0
    for step, arrivals in zip(rank.steps, rank.arrivals, strict=True):
        ends_s = [one.end_s for one in rank.collectives_of(step, others)]
        if name in arrivals and ends_s:
            steps += 1
            waits += arrivals[name] >= max(ends_s)
    return steps > 0 and waits >= NEARLY_ALL * steps


def _gradients(ranks: Sequence[_Rank], names: set[str]) -> tuple[Gradient, ...]:
    """Return the gradients in order of readiness: the median over steps, and the maximum of the ranks' medians."""
    ready_s: dict[str, float] = {}
    tensors: dict[str, Tensor] = {}
    for rank in ranks:
        delays_s: dict[str, list[float]] = {}
        for every in rank.arrivals:
            arrivals = {name: time_s for name, time_s in every.items() if name in names}
            first_s = min(arrivals.values(), default=0.0)
            for name, time_s in arrivals.items():
                delays_s.setdefault(name, []).append(time_s - first_s)
        for name, values in delays_s.items():
            ready_s[name] = max(ready_s.get(name, 0.0), median(values))
            tensors[name] = rank.tensors[name]
    types: dict[str, int] = {}
    made = []
    for name in sorted(names, key=lambda name: ready_s[name]):
        tensor = tensors[name]
        kind = types.setdefault(tensor.dtype, len(types))
        made.append(Gradient(name, tensor.size_bytes, ready_s[name], tensor.dtype, kind))
    return tuple(made)


def _measured(ranks: Sequence[_Rank], names: set[str]) -> tuple[float, float, float]:
    """Return the midmean of a step's finish, the median number of messages with gradients, and the exposed time."""
    finishes_s, counts = [], []
    exposed_s: dict[int, list[float]] = {}
    for rank in ranks:
        for step, arrivals in zip(rank.steps, rank.arrivals, strict=True):
            reductions = rank.collectives_of(step, names)
            arrivals_s = [time_s for name, time_s in arrivals.items() if name in names]
            if reductions and arrivals_s:
                finishes_s.append(max(one.end_s for one in reductions) - min(arrivals_s))
                counts.append(len(reductions))
                exposed_s.setdefault(step.index, []).append(max(one.end_s for one in reductions) - max(arrivals_s))
    # Prefer steps that all ranks recorded; in others the last rank is unknown.
    everywhere = [min(found) for found in exposed_s.values() if len(found) == len(ranks)]
    least_s = midmean(everywhere or [min(found) for found in exposed_s.values()])
    return midmean(finishes_s), float(median(counts)), max(0.0, least_s)


# Cost of messages.


@dataclass(frozen=True)
class _Message:
    """A message, over all ranks that recorded it.

    Attributes:
        size_bytes: its size.
        duration_s: shortest duration: on other ranks it includes the wait for late ranks.
        delay_s: shortest delay of its start after its last tensor arrived and the previous message ended.
        negotiated: some rank got its last tensor during the previous message, so that one coordination round lies
            between.
        idle: some rank got its last tensor while no message was in progress.
    """

    size_bytes: int
    duration_s: float
    delay_s: float
    negotiated: bool
    idle: bool


def _messages(ranks: Sequence[_Rank], process_set: int) -> list[_Message]:
    """Return the messages of the lowest rank, each matched with the other ranks' by step and tensors."""
    seen = [_views(rank, process_set) for rank in ranks]
    found = []
    for key, first in seen[0].items():
        views = [first] + [other[key] for other in seen[1:] if key in other]
        found.append(
            _Message(
                first.message.size_bytes,
                min(view.message.end_s - view.message.start_s for view in views),
                min(view.delay_s for view in views),
                any(view.previous is not None and view.previous.start_s < view.arrived_s for view in views),
                any(view.previous is None or view.previous.end_s <= view.arrived_s for view in views),
            )
        )
    return found


@dataclass(frozen=True)
class _View:
    """A message on one rank: the message, the previous one, and the arrival of its last tensor."""

    message: Collective
    previous: Collective | None
    arrived_s: float

    @property
    def delay_s(self) -> float:
        before_s = self.arrived_s if self.previous is None else max(self.arrived_s, self.previous.end_s)
        return max(0.0, self.message.start_s - before_s)


def _views(rank: _Rank, process_set: int) -> dict[tuple[int, frozenset[str]], _View]:
    views = {}
    previous: Collective | None = None
    for step in rank.steps:
        arrivals = {one.tensor: one.time_s for one in step.arrivals}
        for one in step.collectives:
            tensors = [rank.trace.tensors[number] for number in one.tensors]
            ours = one.kind == ALLREDUCE and {tensor.process_set for tensor in tensors} == {process_set}
            if ours and all(number in arrivals for number in one.tensors):
                names = frozenset(tensor.name for tensor in tensors)
                views[step.index, names] = _View(one, previous, max(arrivals[number] for number in one.tensors))
            previous = one
    return views


def _shorter_s(measured_s: float, in_steps_s: float | None) -> float:
    """Return the shorter of two measurements of a round, as waits can only lengthen them.

    The ranks measure while they also time messages, which others may wait for; in steps ranks wait for late ones.
    """
    return measured_s if in_steps_s is None or in_steps_s < 0 else min(measured_s, in_steps_s)


def _coordination_s(messages: Iterable[_Message], cycle_s: float) -> float | None:
    """Return one round of coordination; below 0 if messages wait less than `cycle_s` implies, None without evidence.

    Messages that became ready while another one was in progress began one round after it. If there are few, the
    messages that found the thread idle are used, less half a cycle.
    """
    busy: list[float] = []
    idle: list[float] = []
    for one in messages:
        if one.idle:
            idle.append(one.delay_s)
        elif one.negotiated:
            busy.append(one.delay_s)
    if len(busy) >= FEW_SAMPLES:
        return median(busy)
    return median(idle) - cycle_s / 2 if idle else None
