"""Losses: means over pipelines by weight, and losses without data, which are NaN as in PyTorch and in hvd.mean."""

from __future__ import annotations

import math
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests.support.stage_training import data, mse, net
from integration_tests.unit.stages.pipelines import piped
from paceline.stages.execution.grid import Grid
from paceline.stages.execution.losses import Losses


class Others:
    """Messages of the other rank: its loss and weight, the same in each mini-batch."""

    def __init__(self, loss: float, weight: float) -> None:
        self.communicator = SimpleNamespace(rank=0)
        self._message = struct.pack("<dd", loss, weight)

    def receive_bytes(self, peer: int, tag: Any, memory: bytearray) -> int:
        memory[:] = self._message
        return 0

    def send_bytes(self, peer: int, tag: Any, data: bytes) -> None:
        """Lose the message."""

    def sweep(self) -> None:
        """Do nothing."""

    def wait(self, operations: list[int]) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ((2.0, 1.0), (5.0, 1.0), 3.5),
        ((2.0, 1.0), (5.0, 3.0), 4.25),
        ((2.0, 1.0), (math.nan, 0.0), 2.0),
        ((math.nan, 0.0), (0.5, 7.0), 0.5),
        ((2.0, 0.0), (5.0, 0.0), math.nan),  # as hvd.mean
    ],
)
def test_mean_of_losses(own: tuple[float, float], other: tuple[float, float], expected: float) -> None:
    post: Any = Others(*other)
    losses = Losses(post, Grid(2, 2), mean=True, together=True)
    loss, losses.weight = own
    losses.expect()
    losses.report(loss)
    found = losses.of(0)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_loss_of_an_empty_batch_is_that_of_the_whole_model() -> None:
    batch, target = data(0, 0)
    assert math.isnan(mse(net()(batch), target).item())
    assert all(math.isnan(loss) for loss in piped(2, lambda pipeline: pipeline.evaluate(batch, target)))
