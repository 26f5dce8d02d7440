"""What is compared: ways of agreeing on what to reduce, all of them Horovod over Gloo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.systems import FUSION
from paceline.examples.benchmarks.scale.cases import PLAN_FILE
from paceline.examples.benchmarks.scale.prediction import Way, gathered, ring, told
from paceline.fusion.policies import FILE
from paceline.horovod.check import built_from

UNCACHED, CACHED, EVENTS, ARMED = "uncached", "cached", "events", "armed"
# Whatever the environment of the benchmark asks for.
_STOCK = {
    "HOROVOD_CACHE_CAPACITY": "1024",
    "HOROVOD_CYCLE_TIME": "1",
    "PACELINE_EXCHANGE": "sync",
    "PACELINE_WAKE": "cycle",
    "PACELINE_ARMED": "no",
    FUSION: "threshold",
}
_EVENTS = {**_STOCK, "PACELINE_WAKE": "events"}
# A plan that is looked at again would be measured while steps are.
_ARMED = {**_EVENTS, "PACELINE_ARMED": "yes", "PACELINE_FUSION_WATCH_STEPS": "0"}


@dataclass(frozen=True)
class ScaleSystem:
    """One entry of the table.

    `env` is set on its ranks. `way` says what one coordination takes among so many ranks. `once`: there is one in a
    step, not one for each part. `planned`: it merges by plan, a message for each part. `ours`: a Horovod without hook
    points has not got it.
    """

    name: str
    env: Mapping[str, str]
    way: Way
    once: bool = False
    planned: bool = False
    ours: bool = False

    def coordinations(self, parts: int) -> int:
        """How many there are in a step."""
        return 1 if self.once else parts

    def refusal(self) -> str:
        """Why it cannot be measured here; "" if it can."""
        if self.ours and built_from() is None:
            return "the installed Horovod is not built by Paceline (`paceline horovod install`)"
        return ""

    def variables(self, folder: str) -> dict[str, str]:
        """What is set on its ranks, which share `folder`."""
        return {**self.env, **({FUSION: f"{FILE}{folder}/{PLAN_FILE}"} if self.planned else {})}


SYSTEMS: dict[str, ScaleSystem] = {
    system.name: system
    for system in (
        ScaleSystem(UNCACHED, {**_STOCK, "HOROVOD_CACHE_CAPACITY": "0"}, gathered),
        ScaleSystem(CACHED, _STOCK, ring),
        ScaleSystem(EVENTS, _EVENTS, told, ours=True),
        ScaleSystem(ARMED, _ARMED, told, once=True, planned=True, ours=True),
    )
}


def find(name: str) -> ScaleSystem:
    """The system `name`; raises UserError for an unknown one."""
    if name not in SYSTEMS:
        raise UserError(f"There is no system {name!r}.", nearest(name, list(SYSTEMS)))
    return SYSTEMS[name]
