"""Kinds of coordination, all of them in Horovod over Gloo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.predict.coordination import Way, disseminated, gathered, ring

UNCACHED, CACHED, EVENTS, ARMED = "uncached", "cached", "events", "armed"
# Overrides the environment of the benchmark.
_STOCK = {
    "HOROVOD_CACHE_CAPACITY": "1024",
    "HOROVOD_CYCLE_TIME": "1",
    "PACELINE_EXCHANGE": "sync",
    "PACELINE_FUSION": "threshold",
    "PACELINE_DEBUG": "",
}
_EVENTS = {**_STOCK, "PACELINE_DEBUG": "wake=events"}
# With re-evaluation, the plan's checks would run during measured steps.
_ARMED = {**_STOCK, "PACELINE_DEBUG": "wake=events,armed=yes,fusion_watch_steps=0"}


@dataclass(frozen=True)
class ScaleSystem:
    """`env` is set on its ranks; `way` is the course of one coordination among a number of ranks.

    `once`: one coordination per step instead of one per part. `planned`: it merges by plan, one message per part.
    """

    name: str
    env: Mapping[str, str]
    way: Way
    once: bool = False
    planned: bool = False

    def coordinations(self, parts: int) -> int:
        """Return the number of coordinations of a step."""
        return 1 if self.once else parts


SYSTEMS: dict[str, ScaleSystem] = {
    system.name: system
    for system in (
        ScaleSystem(UNCACHED, {**_STOCK, "HOROVOD_CACHE_CAPACITY": "0"}, gathered),
        ScaleSystem(CACHED, _STOCK, ring),
        ScaleSystem(EVENTS, _EVENTS, disseminated),
        ScaleSystem(ARMED, _ARMED, disseminated, once=True, planned=True),
    )
}
