"""What is compared: a table of systems that make a network's gradients equal on all ranks.

A later method is one entry here. Its `setup` function is called on every rank, once, with the network and the rank's
assignment; it connects the ranks and returns how to make a step.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.assignment import Assignment, Counters
from paceline.examples.benchmarks.harness.merging import Merging

if TYPE_CHECKING:
    from paceline.examples.benchmarks.networks.network import Network

ALONE = "alone"
HOROVOD = "horovod"
DDP = "ddp"
SYNC_OPTIMAL = "sync_optimal"
PIPELINED = "pipelined"
PIPELINED_OPTIMAL = "pipelined_optimal"
SYNC_ARMED = "sync_armed"
MAJORITY = "majority"
# The same by PACELINE_EXCHANGE alone, of a script for Horovod.
UNMODIFIED = {PIPELINED: "unmodified_pipelined", MAJORITY: "unmodified_majority"}
COMMUNICATION = "communication"
FUSION = "PACELINE_FUSION"
EXCHANGE = "PACELINE_EXCHANGE"
BUCKET_BYTES = "PACELINE_BUCKET_BYTES"
# Whatever the environment of the benchmark asks for.
_OWN_MERGING = {FUSION: "threshold"}
ARMED = "PACELINE_ARMED"
# Horovod's own rounds, and rounds when something happens.
CYCLES, EVENTS = {"PACELINE_WAKE": "cycle"}, {"PACELINE_WAKE": "events"}
# Steps with one negotiation, of ranks that sleep until something happens.
_ARMED = {ARMED: "yes", **EVENTS}
_SYNC = {EXCHANGE: "sync"}
_NO_BUCKETS = {BUCKET_BYTES: "0"}
# Plans themselves are measured: none has to show that it is ahead.
_PLANS = {"PACELINE_FUSION_TRIAL_STEPS": "0"}
_OPTIMAL = {FUSION: "optimal", **_PLANS}
_PIPELINED = {EXCHANGE: "pipelined", "PACELINE_PIPELINE_K": "2", "PACELINE_PIPELINE_WARMUP_STEPS": "0"}
_MAJORITY = {EXCHANGE: "majority", **EVENTS}
_HOROVOD = "paceline.examples.benchmarks.harness.system_horovod:setup"
_PACELINE = "paceline.examples.benchmarks.harness.system_paceline:setup"
# A system waits for its turn longer than communication libraries expect a peer to be silent.
SILENCE_LIMIT_S = 24 * 3600


def _no_counters() -> Counters | None:
    return None


def _no_merging() -> Merging | None:
    return None


@dataclass(frozen=True)
class Running:
    """A system at work on one rank. `step` makes one training step and returns when its gradients are final;
    `counters` gives totals so far, if the system keeps any; `merging` how far the system is that merges by plan, which
    is measured only when it is "active".
    """

    step: Callable[[], None]
    counters: Callable[[], Counters | None] = _no_counters
    merging: Callable[[], Merging | None] = _no_merging


Setup = Callable[["Network", Assignment], Running]


@dataclass(frozen=True)
class System:
    """One entry of the table.

    `setup` is "module:function" of a `Setup`, imported on the ranks only. `env` is set on its ranks. `averages` says
    that after each step every gradient is the mean of all ranks' gradients of the step that was made `age` steps ago,
    which is then checked.
    """

    name: str
    setup: str
    env: Mapping[str, str] = field(default_factory=dict)
    averages: bool = True
    age: int = 0


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System(HOROVOD, _HOROVOD, {**_OWN_MERGING, **_SYNC, **_NO_BUCKETS}),
        System(DDP, "paceline.examples.benchmarks.harness.system_ddp:setup"),
        System(SYNC_OPTIMAL, f"{_PACELINE}_merging", {**_OPTIMAL, **_SYNC}),
        System(SYNC_ARMED, f"{_PACELINE}_merging", {**_OPTIMAL, **_SYNC, **_ARMED}),
        System(PIPELINED, _PACELINE, {**_OWN_MERGING, **_PIPELINED}, age=1),
        System(UNMODIFIED[PIPELINED], _HOROVOD, {**_OWN_MERGING, **_PIPELINED}, age=1),
        System(MAJORITY, _PACELINE, {**_OWN_MERGING, **_MAJORITY}, averages=False),
        System(UNMODIFIED[MAJORITY], _HOROVOD, {**_OWN_MERGING, **_MAJORITY}, averages=False),
        System(
            PIPELINED_OPTIMAL,
            f"{_PACELINE}_merging_pipelined",
            {**_OPTIMAL, **_PIPELINED},
            age=1,
        ),
        System(
            COMMUNICATION,
            "paceline.examples.benchmarks.harness.system_communication:setup",
            {**_OWN_MERGING, **_SYNC},
            averages=False,
        ),
        System(ALONE, "paceline.examples.benchmarks.harness.system_alone:setup", averages=False),
    )
}


def load(setup: str) -> Setup:
    """The setup function that "module:function" names."""
    module, _, function = setup.partition(":")
    loaded: Setup = getattr(importlib.import_module(module), function)
    return loaded


def find(name: str) -> System:
    """The system `name`; raises UserError for an unknown one."""
    if name not in SYSTEMS:
        raise UserError(f"There is no system {name!r}.", nearest(name, list(SYSTEMS)))
    return SYSTEMS[name]


def bucketed(system: System, bucket_bytes: int) -> System:
    """`system`, whose gradients of at most `bucket_bytes` travel in buckets."""
    return replace(system, env={**system.env, BUCKET_BYTES: str(bucket_bytes)})


def merging(policy: str, armed: bool = False) -> System:
    """Horovod that merges by the plans of `policy`: anything that PACELINE_FUSION takes. `armed`: in steps with one
    negotiation, of ranks that sleep until something happens.

    Raises UserError for a policy that cannot be found, and for "threshold", which makes no plans: that is the system
    "horovod".
    """
    from paceline.fusion.resolve import resolve

    if not resolve(policy).makes_plans:
        raise UserError(
            f"The policy {policy} is stock Horovod, which is always measured.", "Leave it out, or name another."
        )
    env = {FUSION: policy, **_PLANS, **_SYNC}
    if not armed:
        return System(policy, f"{_HOROVOD}_merging", env)
    return System(f"armed_{policy}", f"{_HOROVOD}_merging", {**env, **_ARMED})
