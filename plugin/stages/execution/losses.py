"""Losses of mini-batches: the last stage tells all others, which ask for them some steps later."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from paceline.stages.execution.posting import Post, Tag


class Losses:
    """Losses since the start or the last drain, in float64, by the number of the mini-batch."""

    def __init__(self, post: Post, stages: int) -> None:
        self._post, self._last = post, stages - 1
        self._coming: deque[tuple[Tensor, int | None]] = deque()
        self._newest: Tensor = torch.zeros((), dtype=torch.float64)
        self._known = 0

    def begin(self) -> None:
        """Mini-batches count from 0 again; all losses were asked for."""
        self._known = 0

    def expect(self) -> None:
        """On all but the last stage: there will be one more."""
        memory = torch.zeros((), dtype=torch.float64)
        self._coming.append((memory, self._post.receive(self._last, Tag.LOSS, memory)))

    def tell(self, loss: Tensor) -> None:
        """On the last stage: the loss of the next mini-batch."""
        told = loss.detach().to("cpu", torch.float64)
        for stage in range(self._last):
            self._post.send(stage, Tag.LOSS, told)
        self._coming.append((told, None))

    def of(self, minibatch: int) -> Tensor:
        """That of a mini-batch, which is not before the last one asked for. Waits for it."""
        while self._known <= minibatch:
            self._newest, receive = self._coming.popleft()
            self._post.wait([receive])
            self._known += 1
        return self._newest.clone()
