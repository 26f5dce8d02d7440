"""Systems that send messages between ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline import config
from paceline.codecs.choice import EXACT
from paceline.collectives.bounds import (
    ALLREDUCE,
    BROADCAST,
    LINEAR,
    MEASURED,
    REDUCE,
    REDUCE_BESIDE_BROADCAST,
    RING,
    TREE,
)
from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.system import System
from paceline.launch.probe.calls import MODEL
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS

STOCK, DDP = HOROVODS, "ddp"
RIVALS = (STOCK, DDP)
_WORKER = "paceline.examples.benchmarks.collectives.worker"
# Overrides the environment of the benchmark; and no messages are merged.
_HOROVOD = {"PACELINE_EXCHANGE": "sync", "PACELINE_FUSION": "threshold", "HOROVOD_FUSION_THRESHOLD": "0"}


@dataclass(frozen=True)
class Collective:
    """A system, and by operation the collective whose lower bound applies to it; "" where none is known.

    `plain` is the name of the same system without its codec; "" for one without.
    """

    system: System
    bounds: Mapping[str, str]
    codec: str = EXACT
    plain: str = ""

    @property
    def refusal(self) -> str:
        """Reason why it cannot be measured here; "" if it can."""
        try:
            config.read({name: text for name, text in self.system.env.items() if name.startswith(config.PREFIX)})
        except UserError as error:
            return error.problem
        return ""


def find(name: str, wake: str = "") -> Collective:
    """Return horovod (stock), ddp, one of Paceline's collectives, or one with a codec ("ring+q8").

    `wake`: of PACELINE_DEBUG; "": the default.
    Raises UserError for an unknown one.
    """
    if name == DDP:
        bounds = {BROADCAST: TREE, REDUCE: "", REDUCE_BESIDE_BROADCAST: "", ALLREDUCE: RING}
        return Collective(System(DDP, f"{_WORKER}:torch_worker"), bounds)
    collective, _, codec = name.partition("+")
    codec = codec or EXACT
    if collective not in COLLECTIVES or codec not in CODECS:
        raise UserError(
            f"There is no system {name!r}.",
            f"{nearest(name, [*COLLECTIVES, DDP])} A codec may follow one of Paceline's: ring+bf16; codecs are "
            f"{', '.join(one for one in CODECS if one != EXACT)}.",
        )
    env = {**_HOROVOD, "PACELINE_COLLECTIVE": collective} | ({} if codec == EXACT else {"PACELINE_CODEC": codec})
    if wake:
        env["PACELINE_DEBUG"] = f"wake={wake}"
    if collective == STOCK:
        bounds = {BROADCAST: TREE, ALLREDUCE: RING, MODEL: TREE}
    else:
        bounds = dict.fromkeys((BROADCAST, REDUCE, REDUCE_BESIDE_BROADCAST, MODEL), LINEAR) | {ALLREDUCE: collective}
    # With any collective for allreduces, broadcasts and reductions use a chain; codecs apply to sums only.
    able: tuple[str, ...] = (*MEASURED, MODEL) if collective in (STOCK, LINEAR, AUTO) else (ALLREDUCE,)
    if codec != EXACT:
        able = tuple(one for one in able if one in (REDUCE, ALLREDUCE))
    bounds = {operation: bound for operation, bound in bounds.items() if operation in able}
    return Collective(
        System(name, f"{_WORKER}:horovod_worker", env), bounds, codec, "" if codec == EXACT else collective
    )
