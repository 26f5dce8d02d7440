"""Process sets are added and removed while a rank is calls behind in a partial exchange: nobody waits for ever."""

from __future__ import annotations

import time

import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks

STEPS = 3  # after the first round of the name, which waits for all ranks
BEHIND_S = 2.0


@ranks(3, fresh=True, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, timeout_s=60)
def test_a_rank_that_is_behind_ends_its_calls(rank: int, size: int) -> None:
    """Rank 2 gets all missed rounds by one call. Its later calls need a second rank, and the others change sets."""

    def call(name: str) -> torch.Tensor:
        return hvd.partial_allreduce(torch.ones(2, dtype=torch.float64), name, quorum=2, op=hvd.Sum)[0]

    def fall_behind(name: str) -> torch.Tensor:
        """Make calls; rank 2 makes its own when the others have made all of theirs."""
        total = call(name)
        if rank == 2:
            time.sleep(BEHIND_S)
        return total + sum(call(name) for _ in range(STEPS))

    totals = {"added": fall_behind("added")}
    added = hvd.add_process_set([0, 2])
    totals["removed"] = fall_behind("removed")
    assert hvd.remove_process_set(added)
    for name, total in totals.items():
        total += hvd.flush_partial(total, name, quorum=2, op=hvd.Sum).wait()[0]
        assert total.tolist() == [size * (1 + STEPS)] * 2, (name, total)
    hvd.shutdown()
