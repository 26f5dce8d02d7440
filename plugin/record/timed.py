"""Duration of a rank's recorded steps, and the part of it spent waiting for communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median_low

from paceline.record.trace import RankTrace, Step, Trace


@dataclass(frozen=True)
class TimedStep:
    """A step whose successor was recorded too.

    Attributes:
        step: the step.
        time_ms: from its start to the next step's start.
        waiting_ms: exposed communication within `time_ms`.
    """

    step: Step
    time_ms: float
    waiting_ms: float


def timed_steps(trace: RankTrace) -> list[TimedStep]:
    """Return the steps of one rank that have a successor.

    Waiting is the exposed communication: from the last arrival of the step to the end of its last collective, but not
    beyond the start of the next step (a pipelined exchange ends there).
    """
    timed = []
    for step, following in zip(trace.steps, trace.steps[1:], strict=False):
        if following.index != step.index + 1:
            continue
        last_arrival_s = max((arrival.time_s for arrival in step.arrivals), default=step.start_s)
        end_s = max((collective.end_s for collective in step.collectives), default=last_arrival_s)
        waiting_s = max(0.0, min(end_s, following.start_s) - last_arrival_s)
        timed.append(TimedStep(step, 1e3 * (following.start_s - step.start_s), 1e3 * waiting_s))
    return timed


def midmean(values: Iterable[float]) -> float:
    """Return the mean of the middle half of `values`. Raises StatisticsError for no values.

    Pauses of a machine do not count, and of two kinds of steps, such as those with one message and with two, each
    counts with its share.
    """
    found = sorted(values)
    cut = len(found) // 4
    return fmean(found[cut : len(found) - cut])


def median_step(trace: Trace) -> int | None:
    """Return the index of the step with the median time on the lowest rank; its last step if none could be timed."""
    if not trace.ranks or not trace.ranks[0].steps:
        return None
    timed = timed_steps(trace.ranks[0])
    if not timed:
        return trace.ranks[0].steps[-1].index
    middle = median_low([one.time_ms for one in timed])
    return next(one.step.index for one in timed if one.time_ms == middle)
