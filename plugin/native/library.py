"""The Python side of the bridge: hands options to Horovod's library in this process and takes records from it.

`horovod._paceline.glue` calls `before_init` and `before_shutdown`; users call `counters`.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paceline
from paceline import config
from paceline.host.release import BUILT_VERSION
from paceline.native.prototypes import DTYPES, declare
from paceline.record.trace import part_path, write

# How long a rank that ends waits for its gradients in flight.
SHUTDOWN_LIMIT_S = 60.0
INTERFACE = 2  # bridge/c_api.cc: horovod_paceline_interface

_KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "adasum", "join", "barrier", "error")

# Where the trace of a recorded library goes, by the library's handle.
_recordings: dict[int, Path] = {}
_worlds: dict[int, object] = {}


def world(library: ctypes.CDLL) -> object:
    """An object that is another one whenever the ranks of `library` begin anew: init() after shutdown()."""
    return _worlds.get(library._handle)


def _library_name(library: ctypes.CDLL) -> str:
    return "torch" if "torch" in Path(library._name).parts[-2] else "tensorflow"


def before_init(library: ctypes.CDLL) -> None:
    """Read this process's options and hand them to `library`. Raises UserError for options that cannot be used."""
    settings = config.read()
    found = library.horovod_paceline_interface()
    if found != INTERFACE:
        from paceline.errors import UserError
        from paceline.host.check import REMEDY

        raise UserError(f"Horovod's library speaks interface {found} of Paceline, expected {INTERFACE}.", REMEDY)
    declare(library)
    if "fusion" in settings.given() or "paceline.fusion.control" in sys.modules:
        from paceline.fusion import control

        control.begin(library, settings)
    # A second init() without shutdown() in between does nothing, to what is in flight neither.
    if not library.horovod_is_initialized():
        _worlds[library._handle] = object()
        if "paceline.exchange.worlds" in sys.modules:
            sys.modules["paceline.exchange.worlds"].new_world(library)
    from paceline.exchange.agreement import resolve

    if not resolve(None).synchronous:
        _exchange_in_unmodified_scripts(library, settings.exchange)
    if settings.record is not None and library._handle not in _recordings:
        library.horovod_paceline_record_start(settings.record_steps)
        _recordings[library._handle] = settings.record


def _exchange_in_unmodified_scripts(library: ctypes.CDLL, exchange: str) -> None:
    """PACELINE_EXCHANGE holds for scripts that use Horovod's module, too: its wrapper becomes ours.

    `exchange`: its value. Raises UserError where Keras 2 is in use.
    """
    if _library_name(library) == "torch":
        import horovod.torch

        import paceline.torch

        horovod.torch.DistributedOptimizer = paceline.torch.DistributedOptimizer
        horovod.torch.broadcast_optimizer_state = paceline.torch.broadcast_optimizer_state
        return
    if os.environ.get("TF_USE_LEGACY_KERAS", "0") not in ("", "0"):
        from paceline.errors import UserError

        raise UserError(
            f"PACELINE_EXCHANGE={exchange} is set together with TF_USE_LEGACY_KERAS: optimizers of Keras 2 cannot "
            "leave out an update.",
            "Unset PACELINE_EXCHANGE, or use Keras 3.",
        )
    import horovod.tensorflow
    from horovod._paceline import keras3

    import paceline.tensorflow

    keras3.exchange = _exchange_of_keras
    horovod.tensorflow.DistributedOptimizer = paceline.tensorflow.DistributedOptimizer
    horovod.tensorflow.DistributedGradientTape = paceline.tensorflow.DistributedGradientTape
    horovod.tensorflow.PartialDistributedGradientTape = paceline.tensorflow.PartialDistributedGradientTape


def _exchange_of_keras(settings: Any) -> Any:
    from paceline.exchange.agreement import resolve
    from paceline.keras.exchange.making import exchange_of

    make = exchange_of(resolve(None))
    return make and make(settings)


def before_shutdown(library: ctypes.CDLL) -> None:
    """Let gradients in flight arrive, and write what was recorded so far; called at each shutdown.

    A later shutdown overwrites what an earlier one wrote. Whoever ends while its last gradient travels would take it
    from the other ranks.
    """
    if library.horovod_is_initialized():
        library.horovod_paceline_pipelined_settle_all(SHUTDOWN_LIMIT_S)
    record = _recordings.get(library._handle)
    # After shutdown() a rank has no number any more, and everything was written then.
    if record is not None and library.horovod_is_initialized():
        trace = take(library)
        if trace["steps"]:
            path = part_path(record, trace["rank"])
            path.parent.mkdir(parents=True, exist_ok=True)
            write(trace, path)


def counters(library: str) -> dict[str, int]:
    """Sums since the start of this process: coordination_rounds, messages, tensors, bytes.

    `library` is "torch" or "tensorflow", whose Horovod must be loaded. A coordination round is one exchange between
    the background threads of all ranks; a message is one executed collective, into which tensors may be merged.
    """
    out = (ctypes.c_int64 * 4)()
    loaded(library).horovod_paceline_counters(out)
    return dict(zip(("coordination_rounds", "messages", "tensors", "bytes"), out, strict=True))


def loaded(library: str) -> ctypes.CDLL:
    """The shared library of Horovod for "torch" or "tensorflow"; raises ValueError if it is not loaded."""
    module = sys.modules.get(f"horovod.{library}.mpi_ops")
    if module is None:
        raise ValueError(f"horovod.{library} is not loaded in this process: import it and call init() first")
    basics: Any = module._basics
    return declare(basics.MPI_LIB_CTYPES)


def _words(library: ctypes.CDLL) -> tuple[Iterator[int], list[str]]:
    names_bytes = ctypes.c_int64()
    count = library.horovod_paceline_record_take(ctypes.byref(names_bytes))
    words = library.horovod_paceline_record_words()[:count]
    names = ctypes.string_at(library.horovod_paceline_record_names(), names_bytes.value)
    return iter(words), names.decode().split("\0")[:-1]


def decode(words: Iterator[int], names: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tensors and steps of a snapshot (core/record/recorder.h), as they stand in a trace file; times in seconds."""

    def take(count: int) -> list[int]:
        return [next(words) for _ in range(count)]

    tensors = []
    for name in names[: next(words)]:
        size_bytes, dtype, process_set = take(3)
        tensors.append({"name": name, "bytes": size_bytes, "dtype": DTYPES[dtype], "process_set": process_set})
    steps = []
    for _ in range(next(words)):
        index, start_ns, rounds = take(3)
        arrivals = [[tensor, at_ns * 1e-9] for tensor, at_ns in (take(2) for _ in range(next(words)))]
        collectives = []
        for _ in range(next(words)):
            kind, begin_ns, end_ns, size_bytes, count = take(5)
            collectives.append(
                {
                    "kind": _KINDS[kind],
                    "tensors": take(count),
                    "bytes": size_bytes,
                    "start_s": begin_ns * 1e-9,
                    "end_s": end_ns * 1e-9,
                }
            )
        steps.append(
            {
                "index": index,
                "start_s": start_ns * 1e-9,
                "arrivals": arrivals,
                "collectives": collectives,
                "coordination_rounds": rounds,
            }
        )
    return tensors, steps


def take(library: ctypes.CDLL) -> dict[str, Any]:
    """This rank's trace so far (docs/trace.md)."""
    tensors, steps = decode(*_words(library))
    messages = [collective for step in steps for collective in step["collectives"]]
    return {
        "format": "paceline-trace",
        "version": 1,
        "rank": library.horovod_rank(),
        "size": library.horovod_size(),
        "host": socket.gethostname(),
        "library": _library_name(library),
        "horovod": BUILT_VERSION,
        "paceline": paceline.__version__,
        "tensors": tensors,
        "steps": steps,
        "totals": {
            "steps": len(steps),
            "coordination_rounds": sum(step["coordination_rounds"] for step in steps),
            "messages": len(messages),
            "bytes": sum(message["bytes"] for message in messages),
        },
    }
