"""Losses of mini-batches: the last stage tells all others, which ask for them some steps later.

With replicas the last stages of all pipelines tell all ranks, which combine the losses in the order of replicas.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass

from paceline.stages.execution.grid import Grid
from paceline.stages.execution.posting import Post, Tag

_NUMBER = struct.Struct("<d")


@dataclass
class _Loss:
    """Of one mini-batch: a number for each pipeline that is heard, and what has not come."""

    numbers: list[bytearray]
    receives: list[int]


class Losses:
    """Losses since the start or the last drain, in float64, by the number of the mini-batch.

    `post`: among all ranks of `grid`. `mean`: of the pipelines' losses, else their sum. `together`: of all pipelines,
    else of this rank's own, so that it does not wait for the others.
    """

    def __init__(self, post: Post, grid: Grid, mean: bool, together: bool) -> None:
        self._post, self._grid, self._mean, self._always = post, grid, mean, together
        self._rank = post.mail.rank
        self._coming: deque[_Loss] = deque()
        self._untold: deque[_Loss] = deque()
        self._newest = 0.0
        self.begin()

    def begin(self, together: bool = False) -> None:
        """Mini-batches count from 0 again; all losses were asked for. `together`: of all pipelines in any case."""
        grid, (_, replica) = self._grid, self._grid.place(self._rank)
        heard = range(grid.replicas) if together or self._always else [replica]
        self._tellers = [grid.pipeline(one)[-1] for one in heard]
        self._hearers = [rank for one in heard for rank in grid.pipeline(one) if rank != self._rank]
        self._known = 0

    def expect(self) -> None:
        """There will be one more."""
        numbers = [bytearray(_NUMBER.size) for _ in self._tellers]
        pairs = zip(self._tellers, numbers, strict=True)
        told = [self._post.receive_bytes(rank, Tag.LOSS, memory) for rank, memory in pairs if rank != self._rank]
        loss = _Loss(numbers, told)
        self._coming.append(loss)
        if self._rank in self._tellers:
            self._untold.append(loss)

    def tell(self, loss: float) -> None:
        """On the last stage: the loss of the next mini-batch."""
        self._post.sweep()
        self._untold.popleft().numbers[self._tellers.index(self._rank)][:] = _NUMBER.pack(loss)
        for rank in self._hearers:
            self._post.send_bytes(rank, Tag.LOSS, _NUMBER.pack(loss))

    def of(self, minibatch: int) -> float:
        """That of a mini-batch, which is not before the last one asked for. Waits for it."""
        while self._known <= minibatch:
            loss = self._coming.popleft()
            self._post.wait(loss.receives)
            total = sum(_NUMBER.unpack(one)[0] for one in loss.numbers)
            self._newest = total / len(loss.numbers) if self._mean else total
            self._known += 1
        return self._newest
