"""A rank that is late for allreduces: rank r by r skews.

All ranks are processes of this machine, so they share CLOCK_MONOTONIC.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from paceline.examples.benchmarks.harness.connections import connect_horovod
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.skew.model import SYNC
from paceline.launch.quantities import ELEMENT_BYTES

# The first round of a name waits for all ranks; after the second Horovod's response cache is filled.
WARM_UP_CALLS = 2
# From the agreement on a start to the start: with fewer cores than ranks they receive it one after another.
MARGIN_S = 0.01

# Seconds from a call to its return, seconds by which its sleep ended late, contributions that arrived in time.
Sample = tuple[float, float, int]


@dataclass(frozen=True)
class Order:
    """Order of `calls` calls of `system` without skew, alternating with as many with `skew_s` between two ranks."""

    system: str
    size_bytes: int
    skew_s: float
    calls: int


class SkewWorker:
    """A rank of Horovod's world.

    Each system uses different names with and without skew, so that no round includes late contributions of another.
    """

    hello = None

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        connect_horovod(place)
        import paceline.torch as hvd

        self._hvd: Any = hvd
        self._channels: dict[str, Callable[[], int]] = {}

    def answer(self, order: Order, control: Connection) -> list[tuple[Sample, Sample]]:
        """Return the samples without and with skew."""
        return [(self._sample(order, 0.0), self._sample(order, order.skew_s)) for _ in range(order.calls)]

    def _sample(self, order: Order, skew_s: float) -> Sample:
        call = self._channel(order, f"skew.{order.size_bytes}.{order.system}.{'late' if skew_s else 'even'}")
        planned_s = self._meet() + MARGIN_S + self._hvd.rank() * skew_s
        time.sleep(max(0.0, planned_s - time.monotonic()))
        arrived_s = time.monotonic()
        fresh = call()
        return time.monotonic() - arrived_s, arrived_s - planned_s, fresh

    def _channel(self, order: Order, name: str) -> Callable[[], int]:
        """Return a call under this name, after its warm-up calls."""
        if name not in self._channels:
            hvd, tensor = self._hvd, torch.ones(order.size_bytes // ELEMENT_BYTES)

            def full() -> int:
                hvd.allreduce(tensor, name=name)
                return hvd.size()

            def partial() -> int:
                # Initiators differ between sizes: a seed that often selects late ranks would affect all sizes.
                return hvd.partial_allreduce(tensor, name, quorum=order.system, seed=order.size_bytes)[1]

            self._channels[name] = full if order.system == SYNC else partial
            for _ in range(WARM_UP_CALLS):
                self._meet()
                self._channels[name]()
        return self._channels[name]

    def _meet(self) -> float:
        """Wait for all ranks. Return the arrival time of the last one, equal on all ranks."""
        now = torch.tensor([time.monotonic()], dtype=torch.float64)
        return float(self._hvd.allreduce(now, op=self._hvd.Max, name="skew.meet").item())
