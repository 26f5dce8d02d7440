"""Losses of mini-batches: the last stage sends them to all others, which need them some steps later.

With replicas, the last stages of all pipelines send to all ranks, which combine the losses in the order of replicas.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from dataclasses import dataclass

from paceline.stages.execution.grid import Grid
from paceline.stages.execution.posting import Post, Tag

_NUMBERS = struct.Struct("<dd")  # a loss and the weight of its pipeline


@dataclass
class _Loss:
    """Loss of one mini-batch: a number for each pipeline, and the pending receives."""

    numbers: list[bytearray]
    receives: list[int]


class Losses:
    """Losses since the start or the last drain, in float64, by the number of the mini-batch; means by `weight`.

    `post`: connects all ranks of `grid`. `mean`: combine the pipelines' losses by their mean, else by their sum.
    `together`: losses of all pipelines, else only of this rank's own, so that it does not wait for the others. Public
    attribute: `weight` of this pipeline's mini-batches from here on.
    """

    def __init__(self, post: Post, grid: Grid, mean: bool, together: bool) -> None:
        self._post, self._grid, self._mean, self._always = post, grid, mean, together
        self._rank = post.communicator.rank
        self._coming: deque[_Loss] = deque()
        self._unreported: deque[_Loss] = deque()
        self._newest = 0.0
        self.weight = 1.0
        self.begin()

    def begin(self, together: bool = False) -> None:
        """Count mini-batches from 0 again, after all losses were returned; `together`: losses of all pipelines."""
        grid, (_, replica) = self._grid, self._grid.place(self._rank)
        heard = range(grid.replicas) if together or self._always else [replica]
        self._reporters = [grid.pipeline(one)[-1] for one in heard]
        self._hearers = [rank for one in heard for rank in grid.pipeline(one) if rank != self._rank]
        self._known = 0

    def expect(self) -> None:
        """Expect one more loss."""
        numbers = [bytearray(_NUMBERS.size) for _ in self._reporters]
        pairs = zip(self._reporters, numbers, strict=True)
        receives = [self._post.receive_bytes(rank, Tag.LOSS, memory) for rank, memory in pairs if rank != self._rank]
        loss = _Loss(numbers, receives)
        self._coming.append(loss)
        if self._rank in self._reporters:
            self._unreported.append(loss)

    def report(self, loss: float) -> None:
        """Send the loss of the next mini-batch, on the last stage."""
        self._post.sweep()
        packed = _NUMBERS.pack(loss, self.weight)
        self._unreported.popleft().numbers[self._reporters.index(self._rank)][:] = packed
        for rank in self._hearers:
            self._post.send_bytes(rank, Tag.LOSS, packed)

    def of(self, minibatch: int) -> float:
        """Return the loss of a mini-batch, not earlier than the last one returned. Waits for it.

        A mean over pipelines without data is NaN, as that of `hvd.mean`.
        """
        while self._known <= minibatch:
            loss = self._coming.popleft()
            self._post.wait(loss.receives)
            found = [_NUMBERS.unpack(one) for one in loss.numbers]
            if self._mean:
                # The loss of a pipeline without data is undefined and may be NaN.
                total, weight = sum(w * one for one, w in found if w), sum(w for _, w in found)
                self._newest = total / weight if weight else math.nan
            else:
                self._newest = sum(one for one, _ in found)
            self._known += 1
        return self._newest
