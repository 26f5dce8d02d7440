"""Single collectives on values that Keras can convert to tensors; results are tensors of the backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.collectives.encoded import with_codec
from paceline.errors import UserError
from paceline.keras.backend import horovod_module as hvd
from paceline.keras.backend import keras, wire
from paceline.keras3.state import broadcast_state

_allreduce = with_codec(hvd, "allreduce", wire.call_named)


def _tensor(value: Any) -> Any:
    return keras.ops.convert_to_tensor(value)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = hvd.Compression.none,
    process_set: Any = hvd.global_process_set,
    codec: str | None = None,
) -> Any:
    """Combine `value` over all ranks by `op` (Average by default).

    Args:
        value: of the same shape and dtype on all ranks.
        name: name of the operation, the same on all ranks.
        average: Horovod's former way to choose between Average and Sum.
        op: hvd.Average, hvd.Sum or another reduction of Horovod.
        codec: encoding for a sum or an average of floating-point numbers, such as "q8" (docs/methods/codecs.md); None:
            no encoding.

    Raises:
        UsageError: the codec cannot encode this operation.
    """
    if average is not None and op is not None:
        raise UserError("allreduce() got both op and average.", "Give op=hvd.Average or op=hvd.Sum alone.")
    if op is None:
        op = hvd.Sum if average is False else hvd.Average
    return _allreduce(
        _tensor(value),
        op=op,
        name=name or "paceline.keras.allreduce",
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        codec=codec,
    )


def allgather(value: Any, name: str | None = None, process_set: Any = hvd.global_process_set) -> Any:
    """Concatenate the ranks' values along the first dimension, the only one in which they may differ."""
    return hvd.allgather(_tensor(value), name=name or "paceline.keras.allgather", process_set=process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: Any = hvd.global_process_set) -> Any:
    """Return the root's value, of the same shape and dtype on all ranks."""
    name = name or "paceline.keras.broadcast"
    return hvd.broadcast(_tensor(value), root_rank, name=name, process_set=process_set)


def reducescatter(
    value: Any, name: str | None = None, op: Any = hvd.Average, process_set: Any = hvd.global_process_set
) -> Any:
    """Combine the ranks' values by `op`; return this rank's part along the first dimension."""
    name = name or "paceline.keras.reducescatter"
    return hvd.reducescatter(_tensor(value), op=op, name=name, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int, name: str = "broadcast_variables") -> None:
    """Assign the root's values of Keras variables on all ranks, such as `model.weights` or `optimizer.variables`.

    Raises UserError, on every rank, if number, shapes or dtypes differ between ranks.
    """
    broadcast_state(list(variables), root_rank, name)


def broadcast_global_variables(root_rank: int) -> None:
    """Raise UserError: Horovod's call for TensorFlow 1, which knew all variables of a program."""
    raise UserError(
        "Keras 3 has no list of all variables, so broadcast_global_variables() has nothing to go by.",
        f"Use hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) in fit(), or "
        f"hvd.broadcast_variables([*model.weights, *model.optimizer.variables], root_rank={root_rank}).",
    )
