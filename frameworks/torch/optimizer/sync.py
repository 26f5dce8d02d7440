"""What becomes of a gradient between the backward pass and the update.

`Reduction` (reduction.py) decides *when* gradients travel and puts the results back; an `Exchange` decides *what* an
exchange means. `SyncExchange` is Horovod's own: the result is the reduction of this very step's gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from paceline.exchange.agreement import Exchange as Settings
from paceline.pipelined.settings import Pipelined, described
from paceline.torch.host import horovod_torch as horovod

# Waits and returns one result per gradient, in the same order.
Finish = Callable[[], list[Tensor]]
# The same, or None: there are no results in this update, which is to leave these parameters as they are.
Answer = Callable[[], list[Tensor] | None]


def full_names(name: str, count: int) -> list[str]:
    """What Horovod calls the `count` tensors that are started under `name`."""
    if count == 1:
        return [f"allreduce.{name}"]
    return [f"grouped_allreduce.{name}_{n + 1}of{count}" for n in range(count)]


class Exchange(Protocol):
    """How gradients of one name are combined over the ranks."""

    def start(self, name: str, gradients: Sequence[Tensor]) -> Answer:
        """Start to exchange `gradients` under `name` and return at once.

        `gradients` are dense and contiguous, of one type and device, and may be overwritten; or it is one sparse
        gradient. Every rank starts the same names with the same shapes. Calling the answer waits and gives the results.
        """
        ...

    @property
    def settings(self) -> Settings:
        """When gradients are used, and whose; the same on all ranks."""
        ...

    @property
    def immediate(self) -> bool:
        """Whether answers are about the gradients that were just handed in, those of all ranks."""
        ...

    @property
    def filled(self) -> int:
        """How many updates are in flight between steps."""
        ...

    def complete(self) -> bool:
        """All gradients of an update were started and answered. Whether the answers are gradients: make an update."""
        ...

    def discard(self, answers: dict[str, list[Tensor]]) -> bool:
        """All ranks do so, and what they handed in counts as if they had not; `answers` to it by unit name, if any.

        After `complete`, with no answers: those it told of are dropped. Returns whether replicas may have parted.
        """
        ...

    def rescaled(self, scale: float, answered: bool) -> float:
        """By what to multiply answers so that they are scaled by `scale`, the GradScaler's of this update."""
        ...

    def drain(self) -> list[tuple[dict[str, list[Tensor]], float]]:
        """Take out what is in flight: per update, oldest first, results by unit name, and their GradScaler's scale."""
        ...

    def state(self) -> dict[str, Any] | None:
        """What a run that goes on from here needs; None if that is nothing."""
        ...

    def check(self, state: dict[str, Any]) -> None:
        """Raises ValueError for a `state` of another exchange."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Go on where `state`, which `check` accepts, was taken."""
        ...

    def forget(self) -> None:
        """Drop what is in flight."""
        ...


class SyncExchange:
    """Reduce over the ranks of `process_set` with Horovod, after each gradient or group of gradients appears.

    `op`, `compression` and `gradient_predivide_factor` mean what they mean in horovod.torch.DistributedOptimizer. A
    sparse gradient is gathered, not reduced, and is not compressed.
    """

    def __init__(
        self, op: int, compression: Any, gradient_predivide_factor: float, process_set: Any, scope: str = ""
    ) -> None:
        """`scope`: what stands before all names, so that no other optimizer has them."""
        self.scope = scope
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
        name = self.scope + name
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

    settings: Settings = Pipelined(k=1)
    immediate = True
    filled = 0

    def complete(self) -> bool:
        """See Exchange.complete."""
        return True

    def discard(self, answers: dict[str, list[Tensor]]) -> bool:
        """See Exchange.discard."""
        return False

    def rescaled(self, scale: float, answered: bool) -> float:
        """See Exchange.rescaled."""
        return 1.0

    def drain(self) -> list[tuple[dict[str, list[Tensor]], float]]:
        """See Exchange.drain."""
        return []

    def state(self) -> None:
        """See Exchange.state."""
        return None

    def check(self, state: dict[str, Any]) -> None:
        """Raises ValueError for gradients in flight: they would be lost."""
        if state["in_flight"]:
            raise ValueError(f"expected no gradients in flight, found {described(state['k'])}")

    def load(self, state: dict[str, Any]) -> None:
        """See Exchange.load."""

    def forget(self) -> None:
        """See Exchange.forget."""
