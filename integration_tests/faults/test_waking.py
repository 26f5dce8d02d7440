"""Ranks that sleep until something happens (PACELINE_WAKE=events) hear of a death: asleep, waiting, at work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from integration_tests.faults.test_dead_ranks import (
    SIZE,
    _assert_named,
    _assert_stopped_is_named,
    _go_on,
    _hand_in_after,
    _reduce_large,
)
from integration_tests.kills import EXCHANGES, kill, kill_in
from integration_tests.support.more import more

EVENTS = {"PACELINE_WAKE": "events"}
HEARS_S = 5.0


@pytest.mark.parametrize(("exchange", "victim"), list(zip(EXCHANGES, range(SIZE))))
def test_in_training(exchange: str, victim: int) -> None:
    _assert_named(kill(exchange, victim, moment_s=0.1 * (victim + 1), env=EVENTS), victim)


@pytest.mark.parametrize(("body", "victim"), [(_reduce_large, 1), (_hand_in_after, 2), (_go_on, 0)])
def test_in_the_middle_of_something(body: object, victim: int) -> None:
    _assert_named(kill_in(body, (), victim, moment_s=0.2, size=SIZE, env=EVENTS), victim)  # type: ignore[arg-type]


def _sleep(rank: int, size: int, waits: bool, folder: str) -> tuple[float, str]:
    """All are asleep when a rank dies; or one of the survivors waits for an operation that others do not hand in."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="before")
    time.sleep(0.3)
    (Path(folder) / str(rank)).touch()
    if not (waits and rank == 0):
        time.sleep(1.5)
    try:
        hvd.allreduce(torch.ones(3), name="after")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise AssertionError(f"rank {rank} heard of no death")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("victim", [0, 2])
def test_asleep(victim: int, waits: bool) -> None:
    heard = kill_in(_sleep, (waits,), victim, moment_s=0.3, size=SIZE, env=EVENTS)
    _assert_named(heard, victim)
    assert all(one.seconds is not None and one.seconds < HEARS_S for one in heard)


@pytest.mark.parametrize("victim", [0, more(2)])
def test_a_rank_that_stops_is_named_after_the_limit(victim: int) -> None:
    _assert_stopped_is_named(victim, EVENTS)
