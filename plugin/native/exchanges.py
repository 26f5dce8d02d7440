"""Registration of this process's operations with exchanges (bridge/exchanges.h).

An operation is a process set and Horovod's name: "allreduce.<name>" in PyTorch, the node's name in TensorFlow.
"""

from __future__ import annotations

import ctypes

from paceline.errors import UsageError
from paceline.native.prototypes import ERROR_BYTES

PIPELINED, PARTIAL = "pipelined", "partial"


def register(library: ctypes.CDLL, process_set_id: int, name: str, exchange: str, *settings: float) -> None:
    """Register `name` with `exchange` and its settings, before its first call.

    Idempotent. It lasts until `unregister`, for the global process set also over shutdown() and init(). Raises
    UsageError if the name has another exchange or other settings, or if these cannot be used.
    """
    numbers = (ctypes.c_double * max(len(settings), 1))(*settings)
    error = ctypes.create_string_buffer(ERROR_BYTES)
    done = library.horovod_paceline_register(
        process_set_id, name.encode(), exchange.encode(), numbers, len(settings), error, ERROR_BYTES
    )
    if done != 0:
        problem, _, remedy = error.value.decode(errors="replace").rpartition(". ")
        raise UsageError(f"{problem}.", remedy)


def unregister(library: ctypes.CDLL, process_set_id: int, name: str) -> None:
    """Make `name` a plain allreduce again; its results in flight in a pipelined exchange are dropped.

    While an operation of this name is in transit, Horovod accepts no other one of it: settle first.
    """
    library.horovod_paceline_unregister(process_set_id, name.encode())


def flush_next(library: ctypes.CDLL, process_set_id: int, name: str) -> None:
    """Make the next call of `name`, of the partial exchange, a flush."""
    library.horovod_paceline_partial_flush_next(process_set_id, name.encode())
