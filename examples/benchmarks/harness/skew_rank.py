"""One rank of the micro-benchmark of partial allreduces (skew.py).

    horovodrun -np 8 python -m paceline.examples.benchmarks.harness.skew_rank PLAN RESULT

Systems and situations take turns, so that what else the machine does hits all of them alike. Each has a name of its
own: the rounds of one do not carry what came too late in another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import paceline.torch as hvd
from paceline.examples.benchmarks.harness.launched import say
from paceline.examples.benchmarks.harness.skew import ELEMENT_BYTES, SKEWED, SkewPlan
from paceline.examples.benchmarks.harness.skew_model import SYNC, SYSTEMS

# The first round of a name waits for all ranks; after the second Horovod's response cache is filled.
WARM_UP_ITERATIONS = 2
# From the agreement on a start to the start: all ranks must have heard of it. With fewer cores than ranks they do so
# one after another.
MARGIN_S = 0.01
SITUATIONS = ("even", "skewed")

Call = Callable[[], int]


class Channel:
    """One system's calls in one situation, under one name."""

    def __init__(self, system: str, situation: int, size_bytes: int, seed: int, flush_each: bool) -> None:
        self.skewed = situation == SKEWED
        self._tensor = torch.ones(size_bytes // ELEMENT_BYTES)
        self._name = f"skew.{size_bytes}.{SITUATIONS[situation]}.{system}"
        self._choices: dict[str, Any] = {"quorum": system, "seed": seed}
        self._partial = system != SYNC
        self._flush_each = flush_each

    def call(self) -> int:
        """One allreduce; how many contributions in its result came in time."""
        if self._partial:
            return hvd.partial_allreduce(self._tensor, self._name, **self._choices)[1]
        hvd.allreduce(self._tensor, name=self._name)
        return hvd.size()

    def finish_iteration(self) -> None:
        """All ranks have left the call before any goes on with the next; a flush is a meeting, too."""
        if self._flush_each:
            self.flush()

    def flush(self) -> None:
        """Leave nothing in send buffers."""
        if self._partial:
            hvd.flush_partial(self._tensor, self._name, **self._choices).wait()


def meet() -> float:
    """Wait for all ranks; the time in seconds, the same for all of them, of the last one's arrival."""
    now = torch.tensor([time.monotonic()], dtype=torch.float64)
    return float(hvd.allreduce(now, op=hvd.Max, name="skew.meet").item())


def measure_call(channel: Channel, skew_s: float) -> tuple[float, float, float]:
    """One call when it is this rank's time to come: its latency and how late it came, in seconds, and its count."""
    planned_s = meet() + MARGIN_S + (hvd.rank() * skew_s if channel.skewed else 0.0)
    time.sleep(max(0.0, planned_s - time.monotonic()))
    arrived_s = time.monotonic()
    fresh = channel.call()
    latency_s = time.monotonic() - arrived_s
    channel.finish_iteration()
    return latency_s, arrived_s - planned_s, fresh


def measure_size(plan: SkewPlan, size_bytes: int, seed: int, tell: Callable[[str], None]) -> np.ndarray[Any, Any]:
    """This size's samples of all ranks, on every rank (see skew.measure)."""
    channels = [
        [Channel(system, situation, size_bytes, seed, plan.flush_each) for situation in range(len(SITUATIONS))]
        for system in SYSTEMS
    ]

    def iteration() -> list[Any]:
        return [[measure_call(one, plan.skew_ms / 1e3) for one in situations] for situations in channels]

    for _ in range(WARM_UP_ITERATIONS):
        iteration()
    deadline_s = meet() + plan.limit_s / len(plan.sizes_bytes)
    samples: list[Any] = []
    while len(samples) < plan.iterations and (not samples or meet() < deadline_s):
        tell(f"{size_bytes} bytes, iteration {len(samples) + 1} of {plan.iterations}")
        samples.append(iteration())
    for one in (one for situations in channels for one in situations):
        one.flush()
    mine = torch.tensor(samples, dtype=torch.float64).unsqueeze(0)
    everyone = hvd.allgather(mine, name=f"skew.gather.{size_bytes}")
    return everyone.numpy()


def main(plan: SkewPlan, result: str) -> None:
    """Measure all sizes; rank 0 writes the samples to the file `result`, an archive with an array for each size."""
    torch.set_num_threads(1)
    hvd.init()
    tell = say if hvd.rank() == 0 else lambda text: None
    # Initiators are drawn anew for each size: a seed that draws late ones often would mark all sizes alike.
    found = {
        str(size_bytes): measure_size(plan, size_bytes, seed, tell) for seed, size_bytes in enumerate(plan.sizes_bytes)
    }
    if hvd.rank() == 0:
        np.savez(result, **found)  # type: ignore[arg-type]
    hvd.shutdown()


if __name__ == "__main__":
    main(SkewPlan.from_json(sys.argv[1]), sys.argv[2])
