"""Clipping by the norm of all stages' gradients.

Each stage tells the others the norm of each of its gradients. Under a synchronous schedule, and with one stage, factors
are those of one process that clips the whole model: with PyTorch those of torch.nn.utils.clip_grad_norm_, bit for bit.
Under an asynchronous one a stage that waited for all norms of a mini-batch would undo what the schedule gains: it takes
those of later stages for the same mini-batch, which are there already, and those of a stage whose BACKWARDs are d
micro-batches behind for the one ceil(d / N) before; that stage is left out while there is none. Which norms are taken
follows from the schedule alone, so that runs repeat.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from paceline.stages.execution.posting import Post, Tag
from paceline.stages.schedule import Schedule

# Stands for the norm of a gradient that is not there.
_NONE = -1.0


class Gradients(Protocol):
    """The gradients of a stage's parameters."""

    def norms(self) -> list[float | None]:
        """Of each; None for a parameter that has none."""
        ...

    def divide(self, by: int) -> None:
        """Make them smaller."""
        ...

    def clip(self, norms: Sequence[float], max_norm: float) -> float:
        """Scale them for `norms`, of all gradients of the model, to be no longer than `max_norm` together; how long
        they were. Called where there is a gradient.
        """
        ...


class Clipping:
    """Scales the gradients of a mini-batch by the same factor on every stage.

    `gradients`: of this stage. `counts`: how many parameters each stage has. `total_norm`: the last one found, before
    clipping.
    """

    def __init__(self, post: Post, max_norm: float, gradients: Gradients, counts: Sequence[int]) -> None:
        self.total_norm = 0.0
        self._post, self._max_norm = post, max_norm
        self._gradients, self._counts = gradients, counts
        self._stage = post.mail.rank
        self._lags = [0] * len(counts)
        # Norms that are on their way, oldest first, by stage.
        self._coming: list[deque[tuple[int, bytearray]]] = [deque() for _ in counts]

    def begin(self, schedule: Schedule) -> None:
        """The next mini-batches follow `schedule`; nothing is on its way."""
        self._lags = [self._lag(schedule, other) for other in range(len(self._counts))]

    def clip(self) -> None:
        """Scale the gradients of this stage: once for each mini-batch, on every stage."""
        own = [_NONE if norm is None else norm for norm in self._gradients.norms()]
        if own:
            for other in self._others():
                self._post.send_bytes(other, Tag.NORM, struct.pack(f"<{len(own)}d", *own))
        everyones = [own if other == self._stage else self._of(other) for other in range(len(self._counts))]
        found = [norm for norms in everyones for norm in norms if norm != _NONE]
        if any(norm != _NONE for norm in own):
            self.total_norm = self._gradients.clip(found, self._max_norm)

    def settle(self) -> None:
        """Take in what is still on its way; every stage has sent the norms of the same mini-batches."""
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
        """The norms of another stage, for the mini-batch that its lag says."""
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
