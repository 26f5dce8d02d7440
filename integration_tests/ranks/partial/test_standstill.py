"""Ranks that wait for each other under two names, because not all steps call both: the wait ends by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks

# Name and seed. Round 1 is initiated by rank 2 under the first name, by rank 0 under the second one.
SEEDS = {"rare": 2, "often": 0}


@pytest.mark.parametrize("quorum", ["random", 3])
@ranks(3, fresh=True, timeout_s=60)
def test_ranks_that_wait_for_each_other_go_on(rank: int, size: int, quorum: int | str, tmp_path: Path) -> None:
    """Ranks 0 and 1 call a rare name. Rank 2, a step behind, waits for them under another name."""
    log = tmp_path / "log"
    if rank == 0:  # Horovod's C++ log is written to file descriptor 2
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY), 2)
    total, given = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)

    def call(name: str, value: float) -> int:
        nonlocal total, given
        mine = torch.full((2,), 1000.0 * rank + value, dtype=torch.float64)
        given += mine
        result, fresh = hvd.partial_allreduce(mine, f"{name}.{quorum}", quorum=quorum, seed=SEEDS[name], op=hvd.Sum)
        total += result
        return fresh

    for value, name in enumerate(SEEDS):
        assert call(name, value) == size  # the first round of a name
    behind = rank == 2
    first, second = ("often", "rare") if behind else ("rare", "often")
    # Rank 2 may return from the round of "often" and call "rare" before it has sent its part of the latter's round.
    fresh = call(first, 2.0)
    assert fresh in ((1,) if behind else (2, 3)), (first, fresh)
    call(second, 3.0)
    flushes = [
        hvd.flush_partial(total, f"{name}.{quorum}", quorum=quorum, seed=seed, op=hvd.Sum)
        for name, seed in SEEDS.items()
    ]
    total += sum(flush.wait()[0] for flush in flushes)
    assert torch.equal(total, hvd.allreduce(given, op=hvd.Sum, name=f"standstill.{quorum}"))
    if rank == 0:
        text = log.read_text()
        assert "waited for each other in partial rounds for 5 s" in text
        assert f"rare.{quorum}: called by ranks [0, 1], not by ranks [2]." in text
        assert f"often.{quorum}: called by ranks [2], not by ranks [0, 1]." in text
    hvd.shutdown()
