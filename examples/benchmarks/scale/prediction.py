"""What ranks tell each other before something is reduced: hops, messages, and from both the time, by number of ranks.

A coordination takes

    time = fixed + hops x (hop + latency) + messages x message

- `hops` follow each other: who sends in one has waited for the one before. `hop` is what each takes on loopback, the
  waking up of whoever waits for it with it; `latency` is what a network between the hosts adds, one way.
- `messages` are those that the busiest rank handles one after another; `message` is the processor's time for one, sent
  and received. Ranks that share the cores of one machine also share what all their messages cost: where that is more,
  it takes the place of the busiest rank's.
- `fixed` is there whatever the number of ranks, such as the wait for the next of Horovod's cycles.

`fit` finds the three constants, none below 0, from coordinations measured on one machine: the least squares of relative
errors, because times span several powers of ten. Hops and messages of one machine grow with different powers of the
number of ranks p (p and p^2 along a ring), which is what tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

# Up to so many ranks everybody tells everybody (core/coordination/round_phases.h).
MOST_IN_ONE_HOP = 8


@dataclass(frozen=True)
class Work:
    """One coordination: hops one after another, messages that the busiest rank handles, and those that all ranks do."""

    hops: int
    messages: int
    in_all: int


@dataclass(frozen=True)
class Constants:
    """What was fitted, in seconds; see above."""

    fixed_s: float
    hop_s: float
    message_s: float


def ring(ranks: int) -> Work:
    """The *and* of all ranks' bits as Horovod has Gloo do it, with its cache: an all-reduce along a ring."""
    hops = 2 * (ranks - 1)
    return Work(hops, hops, ranks * hops)


def gathered(ranks: int) -> Work:
    """Horovod without its cache: rank 0 gathers lengths, then requests, and broadcasts a length, then its answer.

    Gloo gathers in one hop, in which rank 0 receives from everybody, and broadcasts along a binomial tree.
    """
    depth = (ranks - 1).bit_length()
    return Work(2 + 2 * depth, 2 * (ranks - 1) + 2 * depth, 4 * (ranks - 1))


def told(ranks: int) -> Work:
    """The same *and* with wake=events: phases in which a rank tells some others, and is told by as many."""
    messages = sum(phases(ranks))
    return Work(len(phases(ranks)), messages, ranks * messages)


def phases(ranks: int) -> list[int]:
    """How many others a rank tells in each phase: everybody up to MOST_IN_ONE_HOP ranks, else k phases of radix r."""
    count = 0
    while MOST_IN_ONE_HOP**count < ranks:
        count += 1
    radix = 1
    while radix**count < ranks:
        radix += 1
    strides = [radix**phase for phase in reversed(range(count))]
    return [len(range(stride, min(ranks, radix * stride), stride)) for stride in strides]


def time_s(work: Work, constants: Constants, latency_s: float = 0.0, cores: int | None = None) -> float:
    """Seconds of one coordination: of ranks with a processor each, or, with `cores`, of ranks that share so many."""
    hops_s = work.hops * (constants.hop_s + latency_s)
    return constants.fixed_s + hops_s + handled(work, cores) * constants.message_s


def handled(work: Work, cores: int | None) -> float:
    """Messages that pass one after another: the busiest rank's, or a core's share of all, whichever are more."""
    return work.messages if cores is None else max(work.messages, work.in_all / cores)


def fit(measured: Sequence[tuple[Work, float]], cores: int) -> Constants:
    """The constants at which coordinations of so many seconds, on one machine of `cores`, are met best.

    Raises ValueError without any, or for a time that is not above 0.
    """
    if not measured or any(seconds <= 0 for _, seconds in measured):
        raise ValueError("constants need coordinations that were measured and took some time")
    rows = np.array([[1.0, work.hops, handled(work, cores)] for work, _ in measured])
    relative = rows / np.array([[seconds] for _, seconds in measured])
    goal = np.ones(len(measured))
    best, least = np.zeros(3), np.inf
    # With three columns, trying every choice of those that are not 0 is simplest.
    for count in range(1, min(3, len(measured)) + 1):
        for columns in combinations(range(3), count):
            found, *_ = np.linalg.lstsq(relative[:, columns], goal, rcond=None)
            error = float(np.sum((relative[:, columns] @ found - goal) ** 2))
            # An equal error with more columns is no better.
            if (found >= 0).all() and error < least * (1 - 1e-9) - 1e-18:
                best, least = np.zeros(3), error
                best[list(columns)] = found
    return Constants(*map(float, best))


def worst_error(measured: Sequence[tuple[Work, float]], constants: Constants, cores: int) -> float:
    """The largest relative error of the fit: 0.1 is 10 %."""
    return max(abs(time_s(work, constants, cores=cores) / seconds - 1) for work, seconds in measured)


Way = Callable[[int], Work]
