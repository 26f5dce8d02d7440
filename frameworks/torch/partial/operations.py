"""hvd.partial_allreduce: an allreduce that does not wait for ranks that are late (see paceline.partial.settings)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.native.exchanges import flush_next, unregister
from paceline.native.library import loaded
from paceline.partial.calls import DENSE, begin, check
from paceline.partial.settings import MAJORITY, SUM, Partial
from paceline.torch.host import horovod_torch as horovod


class PartialResult:
    """An answer that may still be on its way; made by `partial_allreduce_async`."""

    def __init__(self, handle: int, like: Tensor) -> None:
        self._handle = handle
        self._like = like

    def done(self) -> bool:
        """Whether `wait` returns at once."""
        return bool(horovod.poll(self._handle))

    def wait(self) -> tuple[Tensor, int]:
        """The result, of the shape and dtype of the tensor, and how many fresh contributions are in it.

        Of several rounds that were missed both are sums. Once only. Raises HorovodInternalError when a rank is lost.
        """
        flat = horovod.synchronize(self._handle)
        return flat[:-1].reshape(self._like.shape), round(flat[-1].item())


def partial_allreduce_async(
    tensor: Tensor,
    name: str,
    quorum: int | str = MAJORITY,
    op: int = horovod.Average,
    missed: str = SUM,
    max_lag: int = 0,
    seed: int = 0,
    process_set: Any = horovod.global_process_set,
) -> PartialResult:
    """Hand in `tensor` under `name` for the next round, and return at once.

    `quorum`, `missed`, `max_lag`, `seed`: see hvd.Partial; the same in all calls of a name, on all ranks. `op`:
    hvd.Average, which divides by the number of all ranks whoever has contributed, or hvd.Sum. Each name is called
    equally often by all ranks; the first round of a name waits for all of them. One call of a name at a time.

    Raises UsageError (a ValueError) for other operations and types, UserError for a quorum that cannot be reached.
    """
    return _hand_in(tensor, name, Partial(quorum, missed, max_lag, 0, seed), op, process_set)


def partial_allreduce(tensor: Tensor, name: str, **choices: Any) -> tuple[Tensor, int]:
    """As partial_allreduce_async, and wait: the result and the number of fresh contributions in it.

    A rank that is late does not wait: it gets what it missed, and its tensor goes with the next round.
    """
    return partial_allreduce_async(tensor, name, **choices).wait()


def flush_partial(
    tensor: Tensor,
    name: str,
    op: int = horovod.Average,
    process_set: Any = horovod.global_process_set,
    **choices: Any,
) -> PartialResult:
    """Bring out what the ranks have in their send buffers under `name`; all ranks call it after their last call.

    `tensor` gives shape and dtype, its values mean nothing; all else as in the calls before (`choices`: quorum, missed,
    max_lag, seed). The result is everything that this rank has not been answered with: with missed="sum" all ranks have
    then got the same in all. A rank that flushes makes no calls until all do, and no round waits for it. Flush all
    names before you wait for one.
    """
    return _hand_in(tensor, name, Partial(**choices), op, process_set, flush=True)


def _hand_in(
    tensor: Tensor, name: str, partial: Partial, op: int, process_set: Any, flush: bool = False
) -> PartialResult:
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = DENSE if tensor.layout == torch.strided else str(tensor.layout)
    check(horovod, name, dtype, op, layout)
    operation = f"allreduce.{name}"
    library, number = loaded("torch"), process_set.process_set_id
    flat = torch.cat([tensor.detach().reshape(-1), tensor.new_zeros(1)])
    begin(library, operation, partial, process_set)
    try:
        if flush:
            flush_next(library, number, operation)
        handle = horovod.allreduce_async_(flat, name=name, op=op, process_set=process_set)
    finally:
        # A plain allreduce of this name is a mistake and refused, not a round whose last element is a count.
        unregister(library, number, operation)
    return PartialResult(handle, tensor)
