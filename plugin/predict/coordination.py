"""Model of coordination: hops and messages before a reduction, and from both the time, by number of ranks.

A coordination takes

    time = fixed + hops x (hop + latency) + messages x message

- `hops` are sequential: the sender of one has waited for the one before. `hop` is the time of each on loopback,
  including the wake-up of its receiver; `latency` is the network's additional one-way time between hosts.
- `messages`: number of messages that the busiest rank handles one after another; `message`: processor time to send and
  receive one. Ranks that share the cores of one machine also share the cost of all their messages; if that is larger
  than the busiest rank's, it replaces it.
- `fixed` does not depend on the number of ranks, such as the wait for Horovod's next cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Up to this number of ranks each rank sends to all others (core/coordination/round_phases.h).
MOST_IN_ONE_HOP = 8


@dataclass(frozen=True)
class Work:
    """One coordination: sequential hops, messages of the busiest rank, and messages of all ranks."""

    hops: int
    messages: int
    in_all: int


@dataclass(frozen=True)
class Constants:
    """Fitted constants in seconds; see the module."""

    fixed_s: float
    hop_s: float
    message_s: float


def ring(ranks: int) -> Work:
    """AND of all ranks' bits as in Horovod with its cache: an all-reduce of Gloo along a ring."""
    hops = 2 * (ranks - 1)
    return Work(hops, hops, ranks * hops)


def gathered(ranks: int) -> Work:
    """Horovod without its cache: rank 0 gathers lengths, then requests, and broadcasts a length, then its answer.

    Gloo gathers in one hop, in which rank 0 receives from all ranks, and broadcasts along a binomial tree.
    """
    depth = (ranks - 1).bit_length()
    return Work(2 + 2 * depth, 2 * (ranks - 1) + 2 * depth, 4 * (ranks - 1))


def disseminated(ranks: int) -> Work:
    """The same AND with wake=events: in each phase a rank sends to some others and receives from as many."""
    messages = sum(phases(ranks))
    return Work(len(phases(ranks)), messages, ranks * messages)


def phases(ranks: int) -> list[int]:
    """Number of ranks that a rank sends to in each phase: all up to MOST_IN_ONE_HOP ranks, else k phases of radix r."""
    count = 0
    while MOST_IN_ONE_HOP**count < ranks:
        count += 1
    radix = 1
    while radix**count < ranks:
        radix += 1
    strides = [radix**phase for phase in reversed(range(count))]
    return [len(range(stride, min(ranks, radix * stride), stride)) for stride in strides]


def time_s(work: Work, constants: Constants, latency_s: float = 0.0, cores: int | None = None) -> float:
    """Seconds of one coordination. Each rank has a processor, or with `cores` all ranks share that number of cores."""
    hops_s = work.hops * (constants.hop_s + latency_s)
    return constants.fixed_s + hops_s + handled(work, cores) * constants.message_s


def handled(work: Work, cores: int | None) -> float:
    """Number of sequential messages: the busiest rank's, or a core's share of all, whichever is larger."""
    return work.messages if cores is None else max(work.messages, work.in_all / cores)


Way = Callable[[int], Work]

# Horovod's round with its response cache, fitted to 2 to 32 ranks of one machine: docs/measurements/coordination.md.
CACHED = Constants(519e-6, 164e-6, 7e-6)


def round_s(ranks: int, latency_s: float, measured_s: float | None = None, measured_ranks: int = 1) -> float:
    """Return Horovod's coordination round among `ranks` ranks, each with a processor.

    Args:
        ranks: number of ranks.
        latency_s: one-way latency between two ranks.
        measured_s: a round among `measured_ranks` ranks. It grows as the modelled round does; None: the model alone.
        measured_ranks: number of ranks of that measurement.
    """
    if ranks == 1:
        return 0.0
    modelled_s = time_s(ring(ranks), CACHED, latency_s)
    if measured_s is None or measured_ranks == 1:
        return modelled_s
    return measured_s * modelled_s / time_s(ring(measured_ranks), CACHED, latency_s)
