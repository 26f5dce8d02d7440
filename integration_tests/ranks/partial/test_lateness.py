"""The rank that coordinates knows which rank is late, by how much, and whether in most rounds or at random."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import pytest

from integration_tests.support.ranks import ranks

STEPS = 55  # more than Lateness::kSteps
PAUSE_S = 0.02
LATE_S = 0.06
PAUSED_S = 0.25  # now and then


@pytest.mark.parametrize("steadily", [True, False])
@ranks(3, fresh=True, hvd="paceline.torch")
def test_the_late_rank_is_named(rank: int, size: int, hvd: Any, steadily: bool) -> None:
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.0), [(f"late.{steadily}.{n}", one) for n, one in enumerate(parameters)],
        exchange=hvd.Partial(quorum=2), bucket_bytes=0,
    )  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            for step in range(STEPS):
                pause_s = LATE_S if steadily else PAUSED_S if step % 9 == 5 else PAUSE_S
                time.sleep(pause_s if rank == 2 else PAUSE_S)
                optimizer.zero_grad()
                sum(one.sum() for one in parameters).backward()
                optimizer.step()
            stats = hvd.exchange_stats()  # before the late rank goes on by itself
            optimizer.drain()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        told = [line for line in log if "was late in" in line]
    hvd.barrier()
    if rank > 0:
        assert stats.ranks == () and stats.latest is None and not told
        return
    assert len(stats.ranks) == size
    if steadily:
        assert stats.latest == (2, "steadily"), stats
        worst = stats.ranks[2]
        assert 10 < worst.mean_ms < 1000 * LATE_S * 2, worst
        assert f"rank 2 is late steadily, in {worst.share:.0%}" in str(stats), str(stats)
        assert [line.split("Paceline: ")[1][:18] for line in told] == ["rank 2 was late in"], told
    else:  # on a busy machine it is the latest of most steps, too: core's test of Lateness shows that it is not named
        assert stats.latest is not None and stats.latest[0] == 2, stats
