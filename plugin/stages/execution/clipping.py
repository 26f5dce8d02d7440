"""Clipping by the norm of all stages' gradients.

Each stage sends the norm of each of its gradients to the others. Under a synchronous schedule, and with one stage,
factors are those of one process that clips the whole model: with PyTorch those of torch.nn.utils.clip_grad_norm_, bit
for bit. Under an asynchronous schedule, waiting for all norms of a mini-batch would undo the gain of the schedule. A
stage therefore uses the norms of later stages for the same mini-batch, which have arrived already. Of an earlier stage,
whose BACKWARDs are d micro-batches behind, it uses the norms of the mini-batch ceil(d / N) before, or none while there
is no such mini-batch. The choice depends only on the schedule, so that runs are reproducible.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from paceline.stages.execution.posting import Post, Tag
from paceline.stages.schedule import Schedule

# Norm of a missing gradient.
_NONE = -1.0


class Gradients(Protocol):
    """The gradients of a stage's parameters."""

    def norms(self) -> list[float | None]:
        """Return the norm of each gradient; None for a parameter without one."""
        ...

    def divide(self, by: int) -> None:
        """Divide the gradients by a number."""
        ...

    def clip(self, norms: Sequence[float], max_norm: float) -> float:
        """Scale the gradients such that the total norm is at most `max_norm`; return the total norm before.

        `norms`: norms of all gradients of the model. Called only if there is a gradient.
        """
        ...


class Clipping:
    """Scale the gradients of a mini-batch by the same factor on every stage.

    `gradients`: gradients of this stage. `counts`: number of parameters of each stage. `total_norm`: the last total
    norm, before clipping.
    """

    def __init__(self, post: Post, max_norm: float, gradients: Gradients, counts: Sequence[int]) -> None:
        self.total_norm = 0.0
        self._post, self._max_norm = post, max_norm
        self._gradients, self._counts = gradients, counts
        self._stage = post.communicator.rank
        self._lags = [0] * len(counts)
        # Norms in flight, oldest first, by stage.
        self._coming: list[deque[tuple[int, bytearray]]] = [deque() for _ in counts]

    def begin(self, schedule: Schedule) -> None:
        """Follow `schedule` with the next mini-batches; nothing is in flight."""
        self._lags = [self._lag(schedule, other) for other in range(len(self._counts))]

    def clip(self) -> None:
        """Scale the gradients of this stage; call once for each mini-batch, on every stage."""
        own = [_NONE if norm is None else norm for norm in self._gradients.norms()]
        if own:
            for other in self._others():
                self._post.send_bytes(other, Tag.NORM, struct.pack(f"<{len(own)}d", *own))
        everyones = [own if other == self._stage else self._of(other) for other in range(len(self._counts))]
        found = [norm for norms in everyones for norm in norms if norm != _NONE]
        if any(norm != _NONE for norm in own):
            self.total_norm = self._gradients.clip(found, self._max_norm)

    def settle(self) -> None:
        """Receive the norms still in flight; every stage has sent the norms of the same mini-batches."""
        for coming in self._coming:
            self._post.wait([receive for receive, _ in coming])
            coming.clear()

    def _lag(self, schedule: Schedule, other: int) -> int:
        if schedule.synchronous or other >= self._stage:
            return 0
        behind = max(self._stage - other, schedule.ahead(other) - schedule.ahead(self._stage))
        return -(-behind // schedule.microbatches)

    def _others(self) -> list[int]:
        return [other for other in range(len(self._counts)) if other != self._stage]

    def _of(self, other: int) -> Sequence[float]:
        """Return the norms of another stage, for the mini-batch that its lag determines."""
        count = self._counts[other]
        if count == 0:
            return ()
        coming = self._coming[other]
        memory = bytearray(8 * count)
        coming.append((self._post.receive_bytes(other, Tag.NORM, memory), memory))
        if len(coming) <= self._lags[other]:
            return ()
        receive, memory = coming.popleft()
        self._post.wait([receive])
        return struct.unpack(f"<{count}d", memory)
