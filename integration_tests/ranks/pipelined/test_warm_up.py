"""Warm-up of a pipelined exchange whose names an optimizer of an earlier world had."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import net, parameters, train


@ranks(2, 3, fresh=True)
def test_warm_up_steps_are_synchronous_after_an_optimizer_of_an_earlier_world(rank: int, size: int) -> None:
    """The earlier optimizer is still alive, as in a notebook, and its names were pipelined ones."""
    import paceline.torch as hvd

    warmup = 5
    found = {}
    kept: list[Any] = []
    for name, exchange in (("k2", "pipelined"), ("warm", hvd.Pipelined(k=4, warmup_steps=warmup)), ("sync", "sync")):
        hvd.init()
        model = net()
        made = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), exchange=exchange, bucket_bytes=0)
        kept.append(optimizer)
        found[name] = parameters(train(model, optimizer, rank, warmup))
        optimizer.drain()
        hvd.shutdown()
    torch.testing.assert_close(found["warm"], found["sync"])  # rings of three add in another order
