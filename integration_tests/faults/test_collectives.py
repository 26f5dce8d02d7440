"""A rank dies while our own collectives send a message: every other rank gets an error at once that names it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from integration_tests.kills import kill_in
from integration_tests.support.deaths import assert_named
from integration_tests.support.encoded import encoded
from integration_tests.support.ranks import run_ranks

SIZE = 3
SOON_S = 10.0  # Gloo's own limit is 30 s
HOROVODS, RING, DIRECT = -1, 1, 2  # core's numbers


def _reduce_large(rank: int, size: int, collective: str, codec: str, folder: str) -> tuple[float, str]:
    """A message is in flight nearly all the time."""
    os.environ |= {"PACELINE_COLLECTIVE": collective, "PACELINE_CODEC": codec}
    import torch

    import paceline.torch as hvd

    hvd.init()
    part = torch.ones(4_000_001)
    name = encoded("large")
    hvd.allreduce(part, name=name)
    (Path(folder) / str(rank)).touch()
    try:
        while True:
            hvd.allreduce(part, name=name)
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
    assert_named(heard, victim, SIZE - 1, SOON_S)


def _meet(rank: int, size: int, folder: str) -> tuple[float, str]:
    """The survivors wait for rank 1, which has left out the comparison of settings."""
    import torch

    import paceline.torch as hvd
    from paceline.native.library import loaded

    hvd.init()
    if rank == 1:
        loaded("torch").horovod_paceline_collective(HOROVODS, 0, 0, 0, 0, 0)
    (Path(folder) / str(rank)).touch()
    try:
        hvd.allreduce(torch.ones(3), name="first")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise AssertionError(f"rank {rank} heard of no death")


def test_a_rank_that_dies_while_ranks_compare_settings_is_named() -> None:
    heard = kill_in(_meet, (), 1, moment_s=0.3, size=SIZE, env={"PACELINE_COLLECTIVE": "ring"})
    assert_named(heard, 1, SIZE - 1)


def _by_another_collective(rank: int, size: int) -> str:
    """Messages of one size that ranks send by different collectives, or for different tensors."""
    import torch

    import paceline.torch as hvd
    from paceline.native.library import loaded

    hvd.init()
    hvd.allreduce(torch.ones(1), name="first")  # ranks compare their settings
    loaded("torch").horovod_paceline_collective(RING if rank == 0 else DIRECT, 0, 0, 0, 0, 0)
    try:
        hvd.allreduce(torch.full((4096,), 1.0 + rank), op=hvd.Sum, name="terms")
    except hvd.HorovodInternalError as error:
        return str(error)
    return "passed for a sum"


def test_ranks_that_send_a_message_differently_report_both_sides() -> None:
    heard = run_ranks(_by_another_collective, 2, env={"PACELINE_COLLECTIVE": "linear"}, fresh=True)
    assert "passed for a sum" not in heard, heard
    sides = {0: "ring", 1: "direct"}
    # A rank that had not received yet may get the other survivor's error: "Rank 0 could not go on: Rank 0 of 2: ...".
    reported = [text for text in heard if "it sends 8192 bytes where 8192 were expected" in text]
    assert reported, heard
    for text in reported:
        assert any(_says_both_sides(text, rank, sides) for rank in (0, 1)), heard


def _says_both_sides(text: str, rank: int, sides: dict[int, str]) -> bool:
    other = 1 - rank
    return all(
        part in text
        for part in (
            f"Rank {rank} of 2: receiving from rank {other} of allreduce.terms failed",
            f"Expected {sides[rank]}, codec none, blocks of ",
            f"found on rank {other} {sides[other]}, codec none, blocks of ",
            "start all ranks with the same PACELINE_* variables",
        )
    )
