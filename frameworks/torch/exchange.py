"""What becomes of a gradient between the backward pass and the update.

`Reduction` (reduction.py) decides *when* gradients travel and puts the results back; an `Exchange` decides *what* an
exchange means. `SyncExchange` is Horovod's own: the result is the reduction of this very step's gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from paceline.torch.host import horovod_torch as horovod

# Waits and returns one result per gradient, in the same order.
Finish = Callable[[], list[Tensor]]


class Exchange(Protocol):
    """How gradients of one name are combined over the ranks."""

    def start(self, name: str, gradients: Sequence[Tensor]) -> Finish:
        """Start to exchange `gradients` under `name` and return at once.

        `gradients` are dense and contiguous, of one type and device, and may be overwritten; or it is one sparse
        gradient. Every rank starts the same names with the same shapes. Calling the answer waits and gives the results.
        """
        ...


class SyncExchange:
    """Reduce over the ranks of `process_set` with Horovod, after each gradient or group of gradients appears.

    `op`, `compression` and `gradient_predivide_factor` mean what they mean in horovod.torch.DistributedOptimizer. A
    sparse gradient is gathered, not reduced, and is not compressed.
    """

    def __init__(self, op: int, compression: Any, gradient_predivide_factor: float, process_set: Any) -> None:
        self.op = op
        self.compression = compression
        self.process_set = process_set
        # Horovod itself divides by the number of ranks after the sum when the operation is Average.
        average = op == horovod.Average
        self._factors = {
            "prescale_factor": 1.0 / gradient_predivide_factor if average else 1.0,
            "postscale_factor": gradient_predivide_factor if average else 1.0,
        }

    def start(self, name: str, gradients: Sequence[Tensor]) -> Finish:
        """See Exchange.start."""
        if gradients[0].is_sparse:
            gathered = horovod.sparse_allreduce_async(gradients[0], name=name, op=self.op, process_set=self.process_set)
            return lambda: [gathered()]
        compressed = [self.compression.compress(gradient) for gradient in gradients]
        tensors = [tensor for tensor, _ in compressed]
        options = {"name": name, "op": self.op, "process_set": self.process_set, **self._factors}
        if len(tensors) == 1:
            handle = horovod.allreduce_async_(tensors[0], **options)
        else:
            handle = horovod.grouped_allreduce_async_(tensors, **options)

        def finish() -> list[Tensor]:
            results = horovod.synchronize(handle)
            return [
                self.compression.decompress(result, context)
                for result, (_, context) in zip([results] if len(tensors) == 1 else results, compressed, strict=True)
            ]

        return finish
