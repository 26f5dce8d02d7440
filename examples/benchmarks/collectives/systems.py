"""What is compared: a table of systems that move messages between ranks.

A later one is an entry here. Its `setup` function is called on every rank, once, with the rank's place; it connects the
ranks and returns how to make calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paceline import config
from paceline.codecs.choice import EXACT
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, LINEAR, OPERATIONS, REDUCE, RING, TREE
from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.collectives.cases import MODEL, Case
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.launch.probe.calls import Calls as Calls
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS

GLOO, DDP, MPI = HOROVODS, "ddp", "mpi"
_HERE = "paceline.examples.benchmarks.collectives"
# Whatever the environment of the benchmark asks for; and nothing is merged with anything.
_HOROVOD = {"PACELINE_EXCHANGE": "sync", "PACELINE_FUSION": "threshold", "HOROVOD_FUSION_THRESHOLD": "0"}
ENCODED_ONES = ("linear+q8", "ring+bf16", "ring+q8", "direct+q8")
# The systems that are measured unless others are named.
DEFAULT = (GLOO, DDP, MPI, *(name for name in COLLECTIVES if name != GLOO), *ENCODED_ONES)


class Caller(Protocol):
    """A rank of a system that is connected to the others."""

    @property
    def operations(self) -> tuple[str, ...]:
        """What it can call."""
        ...

    def prepare(self, case: Case) -> Calls:
        """Allocate what the case needs."""
        ...

    def leave(self) -> None:
        """Say goodbye, where peers that hear none are taken for failed. They may be gone or stopped."""
        ...


Setup = Callable[[Place], Caller]


@dataclass(frozen=True)
class CollectiveSystem:
    """One entry. `setup` is "module:function" of a `Setup`; `env` is set on the ranks; `bounds` has for operations the
    collective whose bound is the system's own; `codec` is how its values travel. `operations` are worth measuring.

    `collective` is the one of Paceline's that it is; "" for others. `by_mpirun`: Open MPI starts its ranks.
    """

    name: str
    setup: str
    env: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, str] = field(default_factory=dict)
    collective: str = ""
    codec: str = EXACT
    operations: tuple[str, ...] = OPERATIONS
    by_mpirun: bool = False

    def refusal(self) -> str:
        """Why it cannot be measured here; "" if it can, as far as is known before its ranks start."""
        if self.by_mpirun and shutil.which("mpirun") is None:
            return "mpirun is not installed (apt-get install openmpi-bin)"
        if self.by_mpirun and importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed (pip install mpi4py)"
        try:
            config.read({name: text for name, text in self.env.items() if name.startswith(config.PREFIX)})
        except UserError as error:
            return error.problem
        return ""


def ours(collective: str, codec: str = EXACT) -> CollectiveSystem:
    """Paceline's `collective`, Horovod's own among them, with a codec."""
    env = {**_HOROVOD, "PACELINE_COLLECTIVE": collective}
    if codec != EXACT:
        env["PACELINE_CODEC"] = codec
    if collective == GLOO:
        bounds = {BROADCAST: TREE, MODEL: TREE, ALLREDUCE: RING}
    else:
        bounds = {BROADCAST: LINEAR, MODEL: LINEAR, REDUCE: LINEAR, ALLREDUCE: collective}
    # Whatever the collective is for allreduces, broadcasts and reductions go along a chain.
    operations: tuple[str, ...] = (*OPERATIONS, MODEL) if collective in (GLOO, LINEAR, AUTO) else (ALLREDUCE,)
    if codec != EXACT:  # which is for values that are summed
        operations = tuple(one for one in operations if one in (REDUCE, ALLREDUCE))
    name = collective if codec == EXACT else f"{collective}+{codec}"
    return CollectiveSystem(name, f"{_HERE}.horovod_calls:setup", env, bounds, collective, codec, operations)


def find(name: str) -> CollectiveSystem:
    """The system `name`: gloo (stock Horovod), ddp, mpi, a collective of Paceline's, or one with a codec ("ring+q8").

    Raises UserError for an unknown one.
    """
    if name == DDP:
        return CollectiveSystem(DDP, f"{_HERE}.ddp_calls:setup", {}, {BROADCAST: TREE, ALLREDUCE: RING})
    if name == MPI:
        return CollectiveSystem(MPI, f"{_HERE}.mpi_calls:setup", by_mpirun=True)
    collective, _, codec = name.partition("+")
    if collective not in COLLECTIVES or (codec or EXACT) not in CODECS:
        known = [*COLLECTIVES, DDP, MPI]
        raise UserError(
            f"There is no system {name!r}.",
            f"{nearest(name, known)} A codec may follow a collective of Paceline's: ring+bf16; codecs are "
            f"{', '.join(one for one in CODECS if one != EXACT)}.",
        )
    return ours(collective, codec or EXACT)


def load(setup: str) -> Setup:
    """The setup function that "module:function" names."""
    module, _, function = setup.partition(":")
    loaded: Setup = getattr(importlib.import_module(module), function)
    return loaded


def plain_of(system: CollectiveSystem, systems: Sequence[CollectiveSystem]) -> CollectiveSystem | None:
    """Of a system with a codec, the one among `systems` that is the same without it."""
    if system.codec == EXACT:
        return None
    return next((one for one in systems if one.collective == system.collective and one.codec == EXACT), None)
