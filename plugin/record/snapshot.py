"""Snapshots of the recorder in Horovod's library, as traces."""

from __future__ import annotations

import ctypes
import socket
import threading
from collections.abc import Iterator

import paceline
from paceline.horovod.release import BUILT_VERSION
from paceline.native.library import library_name
from paceline.native.prototypes import DTYPES
from paceline.record.trace import Arrival, Collective, RankTrace, Step, Tensor, Totals

KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "adasum", "join", "barrier", "error")
# The library keeps only the last snapshot. Reentrant, because a signal handler may interrupt the same thread.
_taking = threading.RLock()


def take(library: ctypes.CDLL) -> RankTrace:
    """Return this rank's trace so far (docs/developers/trace.md)."""
    tensors, steps = decode(*_words(library))
    messages = [collective for step in steps for collective in step.collectives]
    return RankTrace(
        rank=library.horovod_rank(),
        size=library.horovod_size(),
        host=socket.gethostname(),
        library=library_name(library),
        horovod=BUILT_VERSION,
        paceline=paceline.__version__,
        tensors=tensors,
        steps=steps,
        totals=Totals(
            steps=len(steps),
            coordination_rounds=sum(step.coordination_rounds for step in steps),
            messages=len(messages),
            size_bytes=sum(message.size_bytes for message in messages),
        ),
    )


def steps(library: ctypes.CDLL) -> tuple[Step, ...]:
    """Return the recorded steps that are kept."""
    return decode(*_words(library))[1]


def decode(words: Iterator[int], names: list[str]) -> tuple[tuple[Tensor, ...], tuple[Step, ...]]:
    """Decode tensors and steps of a snapshot (core/record/recorder.h), whose times are in ns, to seconds."""

    def number() -> int:
        return next(words)

    def time_s() -> float:
        return next(words) * 1e-9

    # Python evaluates arguments from left to right, the order of the words.
    def tensor(name: str) -> Tensor:
        return Tensor(name, size_bytes=number(), dtype=DTYPES[number()], process_set=number())

    def collective() -> Collective:
        kind, start_s, end_s, size_bytes = KINDS[number()], time_s(), time_s(), number()
        return Collective(kind, tuple(number() for _ in range(number())), size_bytes, start_s, end_s)

    def step() -> Step:
        index, start_s, rounds = number(), time_s(), number()
        arrivals = tuple(Arrival(number(), time_s()) for _ in range(number()))
        ended = [collective() for _ in range(number())]
        return Step(index, start_s, arrivals, tuple(sorted(ended, key=lambda one: one.start_s)), rounds)

    tensors = tuple(map(tensor, names[: number()]))
    return tensors, tuple(step() for _ in range(number()))


def _words(library: ctypes.CDLL) -> tuple[Iterator[int], list[str]]:
    names_bytes = ctypes.c_int64()
    with _taking:
        count = library.horovod_paceline_record_take(ctypes.byref(names_bytes))
        words = library.horovod_paceline_record_words()[:count]
        names = ctypes.string_at(library.horovod_paceline_record_names(), names_bytes.value)
    return iter(words), names.decode().split("\0")[:-1]
