"""Traces of synchronous steps with late ranks, from which Paceline predicts steps that do not wait for these ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate

from paceline.fusion.from_trace import WARM_UP_STEPS
from paceline.predict.remedies import waits_for_others_s
from paceline.record.trace import Arrival, Collective, RankTrace, Step, Tensor, Totals, Trace

# (rank, step) -> delay of the rank in seconds.
Delay = Callable[[int, int], float]


def in_turn(ranks: int, late: int, delay_s: float) -> Delay:
    """Return delays in which `late` ranks are late in each step, all ranks equally often."""

    def delay(rank: int, step: int) -> float:
        return delay_s if (rank - step * late) % ranks < late else 0.0

    return delay


def rotating(ranks: int, delay_s: float) -> Delay:
    """Return delays of 1 to `ranks` times `delay_s`, one for each rank, that rotate from step to step."""
    return lambda rank, step: delay_s * (1 + (rank + step) % ranks)


def lost_s(ranks: int, step_s: float, delay: Delay) -> float:
    """Return the seconds that a synchronous step loses to late ranks, by `paceline plan`'s model.

    `step_s`: time of a step without delay. A rank that is late needs its own time in any case.
    """
    return waits_for_others_s(_trace(ranks, step_s, delay))


@cache
def in_turn_lost_s(ranks: int, late: int, delay_s: float, step_s: float) -> float:
    """Return `lost_s` of `in_turn`."""
    return lost_s(ranks, step_s, in_turn(ranks, late, delay_s))


def _trace(ranks: int, step_s: float, delay: Delay) -> Trace:
    # The last step has no successor, and those of the warm-up do not count.
    steps = WARM_UP_STEPS + ranks + 1
    computing_s = [[step_s + delay(rank, step) for step in range(steps)] for rank in range(ranks)]
    starts_s = [0.0, *accumulate(max(own) for own in zip(*computing_s, strict=True))]
    return Trace(ranks, tuple(_rank(rank, ranks, own, starts_s) for rank, own in enumerate(computing_s)))


def _rank(rank: int, ranks: int, own_s: list[float], starts_s: list[float]) -> RankTrace:
    """One tensor, which is ready at the end of a step; its message takes no time after the last rank."""
    steps = []
    for step, (own, start_s, end_s) in enumerate(zip(own_s, starts_s, starts_s[1:])):
        ready_s = start_s + own
        message = Collective("allreduce", (0,), 4, ready_s, max(ready_s, end_s))
        steps.append(Step(step, start_s, (Arrival(0, ready_s),), (message,), 1))
    totals = Totals(len(steps), len(steps), len(steps), 4 * len(steps))
    return RankTrace(rank, ranks, "host", "torch", "", "", (Tensor("gradient", 4, "float32", 0),), tuple(steps), totals)
