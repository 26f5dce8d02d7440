"""Settings that must be equal on all ranks: Horovod's, Paceline's, and the build of both.

Horovod's library compares them in init(), in every world (plugin/bridge/settings).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import paceline
from paceline import variables

# Name, value and default, as users write them.
Setting = tuple[str, str, str]
FIELD_END = "\x1f"  # core/settings/comparison.h
BUILD = "Build of Paceline"


def _number(text: str) -> str:
    """Parse an integer as C's strtol does."""
    found = re.match(r"\s*([+-]?\d+)", text)
    return str(int(found[1])) if found else "0"


def _switch(text: str) -> str:
    """Return 1 or 0, as Horovod parses switches."""
    return "1" if int(_number(text)) > 0 else "0"


# Horovod's default size of a fusion buffer.
THRESHOLD_BYTES = 128 << 20


@dataclass(frozen=True)
class Variable:
    """A variable of Horovod that must be equal on all ranks.

    Attributes:
        name: name of the environment variable.
        read: returns the value that Horovod parses from its text.
        default: Horovod's default.
        why: reason that it must be equal.
    """

    name: str
    read: Callable[[str], str]
    default: str
    why: str


HOROVODS: tuple[Variable, ...] = (
    Variable(
        "HOROVOD_FUSION_THRESHOLD", _number, str(THRESHOLD_BYTES),
        "every rank makes its fusion buffer this large; the coordinator fills messages up to its own",
    ),
    Variable("HOROVOD_CACHE_CAPACITY", _number, "1024", "ranks exchange one bit for each cached response"),
    Variable("HOROVOD_AUTOTUNE", _switch, "0", "all ranks wait for the coordinator's parameters"),
    Variable("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", _number, "3", "says when ranks wait for these parameters"),
    Variable("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", _number, "10", "says when ranks wait for these parameters"),
    Variable("HOROVOD_HIERARCHICAL_ALLREDUCE", _switch, "0", "selects the algorithm, which all ranks run together"),
    Variable("HOROVOD_HIERARCHICAL_ALLGATHER", _switch, "0", "selects the algorithm, which all ranks run together"),
    Variable("HOROVOD_TORUS_ALLREDUCE", _switch, "0", "selects the algorithm, which all ranks run together"),
    Variable("HOROVOD_CPU_OPERATIONS", str.lower, "", "selects the library that moves tensors in CPU memory"),
    Variable("HOROVOD_ADASUM_MPI_CHUNK_SIZE", _number, str(1 << 30), "selects the size of messages between ranks"),
    Variable("HOROVOD_NUM_NCCL_STREAMS", _number, "1", "selects the communicator of each message"),
    Variable("HOROVOD_DISABLE_GROUP_FUSION", _switch, "0", "every rank merges cached responses by itself"),
    Variable("HOROVOD_DYNAMIC_PROCESS_SETS", _switch, "0", "adds a message of all ranks to every cycle"),
    Variable(
        "HOROVOD_GLOO_TIMEOUT_SECONDS", _number, "30",
        "the rank with the shortest limit ends the job of all; other limits follow from it",
    ),
)  # fmt: skip


def of_horovod(environ: Mapping[str, str] | None = None) -> list[Setting]:
    """Horovod's settings that are not at their defaults in `environ` (os.environ unless given)."""
    environ = variables.environ() if environ is None else environ
    read = [(one, one.read(environ[one.name])) for one in HOROVODS if one.name in environ]
    return [(one.name, value, one.default) for one, value in read if value != one.default]


def build() -> Setting:
    """Return the version of Paceline, and the digest of its changes to the installed Horovod."""
    try:
        changes = importlib.import_module("horovod._paceline.build_info").INPUTS["changes"]
    except (ImportError, KeyError):
        changes = "unknown"
    return BUILD, f"{paceline.__version__} with Horovod {changes}", ""


def text(settings: Iterable[Setting]) -> str:
    """Serialise the settings for core/settings/comparison.h."""
    return "".join(field.replace(FIELD_END, " ") + FIELD_END for one in settings for field in one)
