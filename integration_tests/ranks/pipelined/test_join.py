"""hvd.join() with a pipelined exchange: gradients in flight arrive first, and count."""

from __future__ import annotations

import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks

STEPS = 6


@ranks(2, more=(3,))
def test_ranks_with_fewer_batches_join(rank: int, size: int) -> None:
    steps = [STEPS - 2 * other for other in range(size)]
    for fold in range(3):
        w = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        plain = torch.optim.SGD([w], lr=0.5)
        optimizer = hvd.DistributedOptimizer(plain, [(f"join{fold}", w)], exchange="pipelined")
        for step in range(steps[rank]):
            optimizer.zero_grad()
            (w * float((step + 1) * 8**rank)).sum().backward()
            optimizer.step()
        assert hvd.join() in range(size)
        applied = range(steps[rank] - 1)
        sums = [sum((step + 1) * 8.0**other for other in range(size) if steps[other] > step) for step in applied]
        assert torch.allclose(w.detach(), torch.tensor(-0.5 * sum(sums) / size, dtype=torch.float64), rtol=1e-12), w
        assert optimizer.drain() == 1
