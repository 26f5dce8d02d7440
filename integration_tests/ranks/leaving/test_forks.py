"""Processes that a rank forks, such as those that prepare data, end by themselves: the world is their parent's."""

from __future__ import annotations

import os

from integration_tests.support.ranks import ranks


@ranks(2)
def test_a_forked_process_exits_and_its_rank_goes_on(rank: int, size: int) -> None:
    import torch

    import paceline.torch as hvd

    hvd.init()
    for _ in range(2):
        child = os.fork()
        if child == 0:
            # What a child inherits and runs at its end; the worker that these ranks are must not go on in it.
            try:
                hvd.shutdown()
            finally:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert torch.equal(hvd.allreduce(torch.ones(2), name="after", op=hvd.Sum), torch.full((2,), float(size)))
