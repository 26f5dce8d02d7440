"""The partial exchange of PyTorch gradients: rounds that do not wait for late ranks (see paceline.partial)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.partial import Partial
from paceline.torch.errors import UsageError
from paceline.torch.exchange import Finish, SyncExchange


class PartialExchange:
    """Hands gradients in for the next round of their name; the answers are what this rank has not had yet.

    The first round of a name waits for all ranks. `drain` brings out what is in send buffers: the last update.
    """

    def __init__(self, sync: SyncExchange, settings: Partial) -> None:
        self.settings = settings
        self.immediate = False
        self.filled = 0
        self._sync = sync
        self._ranks = int(sync.process_set.size())
        self._mark = settings.mark(self._ranks)
        self._units: dict[str, list[Tensor]] = {}  # what travels under a name: tensors without memory

    def start(self, name: str, gradients: Sequence[Tensor]) -> Finish:
        """See Exchange.start."""
        if gradients[0].is_sparse:
            raise UsageError(
                f"The gradient of {name!r} is sparse; a partial exchange adds late gradients up.",
                "Give DistributedOptimizer sparse_as_dense=True.",
            )
        self._units[name] = [torch.empty_like(gradient, device="meta") for gradient in gradients]
        return self._sync.start(self._mark + name, gradients)

    def complete(self) -> bool:
        """See Exchange.complete."""
        return True

    def rescaled(self, scale: float, answered: bool) -> float:
        """Refuses a GradScaler: gradients that come late were scaled by what it was then."""
        raise UsageError(
            "A GradScaler was used with an exchange that does not wait for late gradients.",
            'Use bfloat16 without a GradScaler, or exchange="sync".',
        )

    def drain(self) -> list[tuple[dict[str, list[Tensor]], float]]:
        """One update: all that was contributed and that this rank has not been answered with. Waits for all ranks."""
        if not self._units:
            return []
        mark = self.settings.mark(self._ranks, flush=True)
        # All of them before waiting for one.
        flushes = {
            name: self._sync.start(mark + name, [torch.zeros(like.shape, dtype=like.dtype) for like in likes])
            for name, likes in self._units.items()
        }
        return [({name: finish() for name, finish in flushes.items()}, 1.0)]

    def state(self) -> dict[str, Any] | None:
        """See Exchange.state."""
        return None

    def load(self, state: dict[str, Any]) -> None:
        """Raises ValueError for gradients in flight: they would be lost."""
        if state["in_flight"]:
            raise ValueError(f"expected no gradients in flight, found those of k={state['k']}")

    def forget(self) -> None:
        """See Exchange.forget."""
        self._units.clear()
