"""The last operations of a rank as a flight-recorder dump, which PyTorch's analyzer reads: `torchfrtrace FOLDER`.

Horovod matches operations by name, not by order. So each name is a process group of the dump, and the sequence number
of an operation counts the submissions of its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from paceline.errors import UserError
from paceline.native.library import read
from paceline.native.prototypes import DTYPES
from paceline.record.snapshot import KINDS

VERSION = "2.10"  # of the format, that of torch 2.13
# By kind. The analyzer compares sizes by type: ranks gather, exchange and scatter different numbers of rows.
_TYPES = {
    "allreduce": "all_reduce", "adasum": "all_reduce", "allgather": "all_gather_v", "broadcast": "broadcast",
    "alltoall": "all_to_all", "reducescatter": "reduce_scatter_v", "barrier": "barrier",
}  # fmt: skip


class Operations(msgspec.Struct, frozen=True):
    """The operations that a rank's library keeps, by column (bridge/record/api.cc). Times are those of the steady
    clock; 0 where the event has not happened. `ranks`: process set and its ranks; none for that of all ranks.
    """

    names: list[str]
    kinds: list[int]
    dtypes: list[int]
    process_sets: list[int]
    shapes: list[list[int]]
    steps: list[int]
    numbers: list[int]
    submitted_ns: list[int]
    started_ns: list[int]
    completed_ns: list[int]
    ranks: list[tuple[int, list[int]]]


def folder(trace: Path) -> Path:
    """Return where ranks write their dumps when the run's trace is `trace`."""
    return trace.with_name(trace.name + ".flight")


def remove(trace: Path) -> None:
    """Remove the dumps beside `trace`; files of others stay."""
    dumps = folder(trace)
    for path in dumps.glob("rank_*"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        dumps.rmdir()


def write(library: ctypes.CDLL, trace: Path) -> None:
    """Write this rank's dump beside `trace`, so that the file is never seen half-written. Raises UserError."""
    operations = msgspec.convert(read(library, "record_operations"), Operations)
    if not operations.names:
        return
    rank = library.horovod_rank()
    content = pickle.dumps(dump(operations, library.horovod_size(), time.time_ns() - time.monotonic_ns()))
    path = folder(trace) / f"rank_{rank}"
    temporary = trace.with_name(f"{path.parent.name}.rank{rank}.part")  # the analyzer reads every file of the folder
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise UserError(
            f"The flight-recorder dump {path} of rank {rank} cannot be written: {error.strerror}.",
            "Name a trace in a folder that every rank may write to.",
        ) from None


def dump(operations: Operations, size: int, epoch_ns: int) -> dict[str, Any]:
    """Return the dump of a rank in a world of `size` ranks; `epoch_ns` is the Unix time at zero of the steady clock."""
    entries = list(_entries(operations, epoch_ns))
    ranks_of = dict(operations.ranks)
    groups: dict[str, Any] = {}
    status: dict[str, Any] = {}
    for entry, process_set in zip(entries, operations.process_sets, strict=True):
        name, description = entry["process_group"]
        ranks = ranks_of.get(process_set) or list(range(size))
        groups[name] = {"name": name, "desc": description, "ranks": str(ranks)}
        last = status.setdefault(name, dict.fromkeys(_LAST.values(), -1))
        for state, key in _LAST.items():
            if _STATES.index(entry["state"]) >= _STATES.index(state):
                last[key] = entry["collective_seq_id"]
    return {"version": VERSION, "pg_config": groups, "pg_status": status, "entries": entries}


_STATES = ("scheduled", "started", "completed")
_LAST = {
    "scheduled": "last_enqueued_collective",
    "started": "last_started_collective",
    "completed": "last_completed_collective",
}


def _entries(operations: Operations, epoch_ns: int) -> Iterator[dict[str, Any]]:
    columns = (getattr(operations, name) for name in Operations.__struct_fields__ if name != "ranks")
    groups: dict[str, int] = {}
    for op_id, row in enumerate(zip(*columns, strict=True)):
        name, kind, dtype, process_set, shape, step, number, submitted_ns, started_ns, completed_ns = row
        group = name if process_set == 0 else f"{name} of process set {process_set}"
        sizes, dtypes = _form(KINDS[kind], shape, DTYPES[dtype])
        yield {
            # Ranks submit a step's operations in different orders; the analyzer cuts what older steps of other ranks
            # would be compared with at the largest first record_id.
            "record_id": step,
            "pg_id": groups.setdefault(group, len(groups)),
            "process_group": (group, f"process set {process_set}"),
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": op_id,
            # The analyzer knows no name for MPI or Horovod.
            "profiling_name": f"gloo:{_TYPES[KINDS[kind]]}",
            "time_created_ns": epoch_ns + submitted_ns,
            "time_discovered_started_ns": epoch_ns + started_ns if started_ns else None,
            "time_discovered_completed_ns": epoch_ns + completed_ns if completed_ns else None,
            "input_sizes": sizes,
            "input_dtypes": dtypes,
            "output_sizes": sizes,
            "output_dtypes": dtypes,
            "state": "completed" if completed_ns else "started" if started_ns else "scheduled",
            "retired": bool(completed_ns),
            "is_p2p": False,
            "frames": [],
        }


def _form(kind: str, shape: list[int], dtype: str) -> tuple[list[list[int]], list[str]]:
    """Return sizes and types of the one tensor, without rows where these may differ between ranks."""
    if kind == "barrier":
        return [], []
    return [shape[1:] if kind == "allgather" else shape], [dtype]
