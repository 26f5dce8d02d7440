"""The coordinator knows the late rank, its delay, and whether it is late in most rounds or at random."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.merging import ByHand
from integration_tests.support.ranks import ranks

STEPS = 55  # more than Lateness::kSteps
LATE_S = 0.06


@pytest.mark.parametrize("steadily", [True, False])
@ranks(3, fresh=True, hvd="paceline.torch")
def test_the_late_rank_is_named(rank: int, size: int, hvd: Any, steadily: bool, tmp_path: Path) -> None:
    """A late rank begins its step when the others have ended theirs: rank 2 always, or each in its turn."""
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.0), [(f"late.{steadily}.{n}", one) for n, one in enumerate(parameters)],
        exchange=hvd.Partial(quorum=2), bucket_bytes=0,
    )  # fmt: skip

    def wait_for(ranks: Iterable[int], step: int) -> None:
        files = [tmp_path / f"{one}.{step}" for one in ranks]
        ByHand.wait(lambda: all(file.exists() for file in files))

    def step_of(step: int) -> None:
        late = 2 if steadily else step % size
        if step and rank == late:  # the first round of a name waits for all
            wait_for({0, 1, 2} - {late}, step)
            time.sleep(LATE_S if rank == 2 else 0)
        optimizer.zero_grad()
        sum(one.sum() for one in parameters).backward()
        optimizer.step()
        (tmp_path / f"{rank}.{step}").touch()
        wait_for(range(size), step)

    with tempfile.TemporaryFile("w+") as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            for step in range(STEPS):
                step_of(step)
            stats = hvd.exchange_stats()  # before the late rank continues by itself
            optimizer.drain()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        reported = [line for line in log if "was late in" in line]
    hvd.barrier()
    if rank > 0:
        assert stats.ranks == () and stats.latest is None and not reported
        return
    assert len(stats.ranks) == size
    how = "steadily" if steadily else "at random"
    assert stats.latest == (2, how), stats
    worst = stats.ranks[2]
    assert worst.mean_ms >= 1000 * LATE_S, worst
    assert f"rank 2 is late {how}, in {worst.share:.0%}" in str(stats), str(stats)
    assert [line.split("Paceline: ")[1][:18] for line in reported] == ["rank 2 was late in"] * steadily, reported
