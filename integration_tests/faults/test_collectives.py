"""A rank dies while our own collectives carry a message: every other one hears of it at once and by name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from integration_tests.kills import kill_in

SIZE = 3
SOON_S = 10.0  # Gloo's own limit is 30 s


def _reduce_large(rank: int, size: int, collective: str, codec: str, folder: str) -> tuple[float, str]:
    """A message is on its way nearly all the time."""
    os.environ |= {"PACELINE_COLLECTIVE": collective, "PACELINE_CODEC": codec}
    import torch

    import paceline.torch as hvd

    hvd.init()
    part = torch.ones(4_000_001)
    hvd.allreduce(part, name="large")
    (Path(folder) / str(rank)).touch()
    try:
        while True:
            hvd.allreduce(part, name="large")
            hvd.broadcast(part, 0, name="also")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)


@pytest.mark.parametrize(
    ("collective", "codec", "victim"),
    [("linear", "none", 0), ("linear", "q8", 1), ("ring", "none", 2), ("ring", "bf16", 1), ("direct", "q8", 0),
     ("doubling", "none", 2), ("auto", "none", 1)],
)  # fmt: skip
def test_survivors_in_the_middle_of_a_message_name_the_dead_rank(collective: str, codec: str, victim: int) -> None:
    heard = kill_in(_reduce_large, (collective, codec), victim, moment_s=0.2, size=SIZE)
    assert len(heard) == SIZE - 1
    for one in heard:
        assert one.named(victim), f"rank {victim} died, rank {one.rank}: {one.text}"
        assert one.seconds is not None and one.seconds < SOON_S
