"""drain() on a rank that made no step since its last one returns at once; the others raise after the drain's limit."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

LIMIT_S = 3


def _step(model: torch.nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


@ranks(3, fresh=True, env={"PACELINE_DRAIN_LIMIT_S": str(LIMIT_S)}, timeout_s=60)
def test_drain_without_a_step_on_one_rank(rank: int, size: int) -> None:
    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), exchange=hvd.Partial(quorum=2)
    )
    _step(model, optimizer)
    optimizer.drain()
    behind = rank == 2
    begin_s = time.monotonic()
    if behind:
        assert optimizer.drain() == 0
    else:
        _step(model, optimizer)  # two of three ranks are enough
        with pytest.raises(UserError, match=rf"Rank {rank} waited in drain\(\) for .* for 3 s"):
            optimizer.drain()
    assert time.monotonic() - begin_s < LIMIT_S + 15, "longer than its limit"
    hvd.barrier()
    hvd.shutdown()
