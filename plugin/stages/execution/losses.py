"""Losses of mini-batches: the last stage tells all others, which ask for them some steps later."""

from __future__ import annotations

import struct
from collections import deque

from paceline.stages.execution.posting import Post, Tag

_NUMBER = struct.Struct("<d")


class Losses:
    """Losses since the start or the last drain, in float64, by the number of the mini-batch."""

    def __init__(self, post: Post, stages: int) -> None:
        self._post, self._last = post, stages - 1
        self._coming: deque[tuple[bytearray, int | None]] = deque()
        self._newest = 0.0
        self._known = 0

    def begin(self) -> None:
        """Mini-batches count from 0 again; all losses were asked for."""
        self._known = 0

    def expect(self) -> None:
        """On all but the last stage: there will be one more."""
        memory = bytearray(_NUMBER.size)
        self._coming.append((memory, self._post.receive_bytes(self._last, Tag.LOSS, memory)))

    def tell(self, loss: float) -> None:
        """On the last stage: the loss of the next mini-batch."""
        told = bytearray(_NUMBER.pack(loss))
        for stage in range(self._last):
            self._post.send_bytes(stage, Tag.LOSS, told)
        self._coming.append((told, None))

    def of(self, minibatch: int) -> float:
        """That of a mini-batch, which is not before the last one asked for. Waits for it."""
        while self._known <= minibatch:
            memory, receive = self._coming.popleft()
            self._post.wait([receive])
            self._newest = _NUMBER.unpack(memory)[0]
            self._known += 1
        return self._newest
