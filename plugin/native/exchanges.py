"""Which operations of this process belong to which exchange (bridge/exchanges.h).

An operation is what Horovod calls it, in a process set: "allreduce.<name>" of PyTorch, the node's name of TensorFlow.
"""

from __future__ import annotations

import ctypes

from paceline.errors import UsageError
from paceline.native.prototypes import ERROR_BYTES

PIPELINED, PARTIAL = "pipelined", "partial"


def register(library: ctypes.CDLL, process_set_id: int, name: str, exchange: str, *settings: float) -> None:
    """Give `name` to `exchange`, with settings as that one's bridge reads them, before its first call.

    Again with the same settings: as once. Lasts until `unregister`; for the global process set also over shutdown() and
    init(). Raises UsageError if the name has another exchange or other settings, or these cannot be used.
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
    """Make `name` a plain allreduce again; what is in flight under it in a pipelined exchange is dropped.

    While something travels under the name, Horovod takes no other operation of it: settle first.
    """
    library.horovod_paceline_unregister(process_set_id, name.encode())


def flush_next(library: ctypes.CDLL, process_set_id: int, name: str) -> None:
    """Make the next call of `name`, of the partial exchange, a flush."""
    library.horovod_paceline_partial_flush_next(process_set_id, name.encode())
