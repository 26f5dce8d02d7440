"""An allreduce that is started in every update: all that is the same each time is found once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from paceline.exchange.adapter import Bucket
from paceline.torch.horovod import horovod_torch as horovod


class Operation:
    """The allreduce of some tensors under one name, in place."""

    def __init__(
        self,
        bucket: Bucket,
        name: str,
        full_names: Sequence[str],
        parameters: Sequence[Tensor],
        op: int,
        factors: tuple[float, float],
        process_set: Any,
    ) -> None:
        """`full_names`: what Horovod calls it, one per tensor; `parameters`: whose gradients they are. `factors`: what
        is multiplied with before and after the sum.
        """
        self.parameters = parameters
        self._bucket = bucket
        self._dtype = parameters[0].dtype
        self._full_names = full_names
        self._name = name
        self._op = op
        self._factors = factors
        self._process_set = process_set
        self._type: Any = None  # of the tensors that `_enqueue` is for
        self._enqueue: Callable[[Tensor], int] = self._slowly

    def is_of(self, bucket: Bucket) -> bool:
        """Whether it is still that of `bucket`: names may have a word for the type of the parameters in them."""
        return self._bucket is bucket and self.parameters[0].dtype is self._dtype

    def full_names(self) -> Sequence[str]:
        """What Horovod calls it, one name per tensor."""
        return self._full_names

    def start(self, tensors: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
        """Hand `tensors` in, dense and contiguous and of one type; what is returned waits and gives them with results.

        Raises ValueError for a type that Horovod does not carry, HorovodInternalError when ranks disagree.
        """
        if len(tensors) > 1:
            handle = horovod.grouped_allreduce_async_(tensors, **self._options())
            return lambda: list(horovod.synchronize(handle))
        tensor = tensors[0]
        kind = tensor.dtype, tensor.is_cuda
        if kind != self._type:
            self._type, self._enqueue = kind, self._resolved(tensor)
        handle = self._enqueue(tensor)
        return lambda: [horovod.synchronize(handle)]

    def _options(self) -> dict[str, Any]:
        before, after = self._factors
        return {
            "name": self._name,
            "op": self._op,
            "prescale_factor": before,
            "postscale_factor": after,
            "process_set": self._process_set,
        }

    def _slowly(self, tensor: Tensor) -> int:
        return int(horovod.allreduce_async_(tensor, **self._options()))

    def _resolved(self, tensor: Tensor) -> Callable[[Tensor], int]:
        """What Horovod's allreduce_async_ comes to for tensors of this type, without asking again each time."""
        if self._op == horovod.Adasum or horovod.rocm_built():
            return self._slowly
        library = horovod.mpi_ops.mpi_lib
        function = getattr(library, horovod.mpi_ops._allreduce_function_factory(tensor), None)
        if function is None:
            return self._slowly  # which says so
        name, op, (before, after) = self._name.encode(), self._op, self._factors
        process_set = self._process_set

        def enqueue(tensor: Tensor) -> int:
            try:
                handle = function(tensor, tensor, 1, name, op, before, after, process_set.process_set_id)
            except RuntimeError as error:
                raise horovod.HorovodInternalError(error) from error
            horovod.mpi_ops._handle_map[handle] = tensor, tensor
            return int(handle)

        return enqueue
