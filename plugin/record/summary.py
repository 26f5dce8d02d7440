"""Summary of a trace: step time, traffic, and the share of a step spent waiting for communication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from paceline.record.timed import timed_steps
from paceline.record.trace import RankTrace


@dataclass(frozen=True)
class Summary:
    """Medians over steps; None if no step could be timed (fewer than two consecutive ones were recorded)."""

    tensors: int
    steps: int
    step_ms: float | None
    waiting_share: float | None
    bytes_per_step: float
    messages_per_step: float
    rounds_per_step: float


@dataclass(frozen=True)
class SlowTensor:
    """A tensor and its median time from arrival to the end of its collective, over ranks and steps."""

    name: str
    size_bytes: int
    latency_ms: float


def summarise(ranks: Sequence[RankTrace]) -> Summary:
    """Return one summary of all steps of the given ranks."""
    steps = [step for trace in ranks for step in trace.steps]
    timed = [one for trace in ranks for one in timed_steps(trace)]
    return Summary(
        tensors=max((len(trace.tensors) for trace in ranks), default=0),
        steps=max((trace.totals.steps for trace in ranks), default=0),
        step_ms=_median(one.time_ms for one in timed),
        waiting_share=_median(one.waiting_ms / one.time_ms for one in timed if one.time_ms > 0),
        bytes_per_step=_median(sum(one.size_bytes for one in step.collectives) for step in steps) or 0.0,
        messages_per_step=_median(len(step.collectives) for step in steps) or 0.0,
        rounds_per_step=_median(step.coordination_rounds for step in steps) or 0.0,
    )


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(median(known)) if known else None


def slowest_tensors(ranks: Sequence[RankTrace], count: int = 5) -> list[SlowTensor]:
    """Return the `count` tensors with the longest median latency, longest first.

    Omits names with fewer than half as many steps as the most frequent name, such as agreements of the first step and
    averages once an epoch: they have no median over steps.
    """
    latencies_ms: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for trace in ranks:
        for step in trace.steps:
            done_s = {tensor: one.end_s for one in step.collectives for tensor in one.tensors}
            for arrival in step.arrivals:
                if arrival.tensor in done_s:
                    tensor = trace.tensors[arrival.tensor]
                    sizes[tensor.name] = tensor.size_bytes
                    latency_ms = 1e3 * (done_s[arrival.tensor] - arrival.time_s)
                    latencies_ms.setdefault(tensor.name, []).append(latency_ms)
    most = max(map(len, latencies_ms.values()), default=0)
    slow = [
        SlowTensor(name, sizes[name], median(values))
        for name, values in latencies_ms.items()
        if 2 * len(values) >= most
    ]
    return sorted(slow, key=lambda tensor: (-tensor.latency_ms, tensor.name))[:count]
