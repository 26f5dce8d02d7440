"""hvd.partial_allreduce: an allreduce that does not wait for late ranks (see paceline.partial.settings)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.arguments import check_reproducible
from paceline.horovod.shims import host_staging
from paceline.native.exchanges import flush_next, unregister
from paceline.native.library import loaded
from paceline.partial.calls import DENSE, begin, calls, check
from paceline.partial.settings import Partial
from paceline.torch.horovod import horovod_torch as horovod


class PartialResult:
    """Result that may still be in flight; returned by `partial_allreduce_async`."""

    def __init__(self, handle: int, like: Tensor) -> None:
        self._handle = handle
        self._like = like

    def done(self) -> bool:
        """Return True if `wait` returns at once."""
        return bool(horovod.poll(self._handle))

    def wait(self) -> tuple[Tensor, int]:
        """Wait for the result. May be called once.

        Returns:
            The result, of the tensor's shape and dtype, and the number of fresh contributions in it. If this rank
                missed several rounds, both are sums over these rounds.

        Raises:
            HorovodInternalError: a rank is lost.
        """
        flat = horovod.synchronize(self._handle)
        return flat[:-1].reshape(self._like.shape), round(flat[-1].item())


def _hand_in(
    tensor: Tensor, name: str, partial: Partial, op: int, process_set: Any, flush: bool, waits: bool
) -> PartialResult:
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = DENSE if tensor.layout == torch.strided else str(tensor.layout)
    check(horovod, name, dtype, op, layout)
    operation = f"allreduce.{name}"
    library, number = loaded("torch"), process_set.process_set_id
    flat = torch.cat([tensor.detach().reshape(-1), tensor.new_zeros(1)])
    check_reproducible(partial)
    begin(library, operation, partial, process_set)
    try:
        if flush:
            flush_next(library, number, operation)
        handle = horovod.allreduce_async_(flat, name=name, op=op, process_set=process_set)
        host_staging.settle()  # GPU tensors are submitted later, and this name is unregistered below
    finally:
        # A plain allreduce of this name is a mistake and must be refused, not taken as a round whose last element is a
        # count.
        unregister(library, number, operation)
    return PartialResult(handle, tensor)


partial_allreduce_async, partial_allreduce, flush_partial = calls(horovod, _hand_in)
