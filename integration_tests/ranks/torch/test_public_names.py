"""Public types of paceline.torch for isinstance checks, and hvd.Sync."""

from __future__ import annotations

import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks


@ranks(2)
def test_results_are_of_the_types_that_are_named(rank: int, size: int) -> None:
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    plain = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(prefix="types"), exchange=hvd.Sync())
    assert isinstance(optimizer, hvd.WrappedOptimizer)
    before, rounds = model.weight.detach().clone(), hvd.exchange_stats().rounds
    model(torch.full((1, 2), rank + 1.0)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(before - model.weight.detach(), torch.full((1, 2), 0.5 * (size + 1) / 2))
    report, stats = hvd.fusion_report(), hvd.exchange_stats()
    assert isinstance(report, hvd.FusionReport) and report.policy == "threshold"
    assert isinstance(stats, hvd.ExchangeStats) and stats.rounds == rounds
    begun = hvd.partial_allreduce_async(torch.ones(3), "types.partial", quorum=size)
    assert isinstance(begun, hvd.PartialResult)
    mean, fresh = begun.wait()
    assert (mean.tolist(), fresh) == ([1.0, 1.0, 1.0], size)
