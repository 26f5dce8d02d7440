"""Partial rounds together with other features: plans, Join, timelines, errors in mid-run, absent ranks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support import timelines
from integration_tests.support.merging import ByHand, Messages
from integration_tests.support.ranks import ranks, run_ranks

SOLO: dict[str, Any] = {"quorum": "solo"}


@ranks(3, more=(4,), fresh=True, timeout_s=40)
def test_first_round_of_a_name_does_not_wait_for_a_rank_that_waits_for_the_others(rank: int, size: int) -> None:
    """A late rank gets two missed rounds at once, so that its last call waits for votes that nobody else will give."""
    total, given = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)

    def call(name: str, step: int) -> None:
        nonlocal total, given
        mine = torch.full((2,), 1000.0 * rank + step, dtype=torch.float64)
        given += mine
        total += hvd.partial_allreduce(mine, name, quorum=2, op=hvd.Sum)[0]

    for step in range(3):
        if rank == 0 and step == 1:
            time.sleep(1.0)
        call("late", step)
    call("new", 3)
    for name in ("late", "new"):
        total += hvd.flush_partial(total, name, quorum=2, op=hvd.Sum).wait()[0]
    assert torch.equal(total, hvd.allreduce(given, op=hvd.Sum, name="late.all"))
    hvd.shutdown()


@ranks(3, more=(2, 5))
def test_shape_that_changes_in_a_later_round_is_an_error_on_all_ranks(rank: int, size: int) -> None:
    for kind, wrong in {"shape": torch.ones(2, 3), "type": torch.ones(6, dtype=torch.float64)}.items():
        name = f"changed.{kind}"
        for _ in range(3):
            hvd.partial_allreduce(torch.ones(3, 2), name, **SOLO)
        hvd.barrier()
        if rank == size - 1:
            with pytest.raises(Exception, match=r"expected float32 \[7\].*found float"):
                hvd.partial_allreduce(wrong if kind == "type" else torch.ones(7), name, **SOLO)
        hvd.barrier()
        found = "float64" if kind == "type" else "float32"
        with pytest.raises(
            Exception, match=rf"(?s)changed.{kind}: expected float32 \[7\].*found {found} .*on rank {size - 1}"
        ):
            for _ in range(20):
                hvd.partial_allreduce(torch.ones(3, 2), name, **SOLO)
        hvd.barrier()


@ranks(3, more=(5,), fresh=True)
def test_joined_ranks_take_part_and_nothing_is_lost(rank: int, size: int) -> None:
    total, given = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for quorum in ("solo", "majority", 3):
        name = f"joined.{quorum}"
        for step in range(3 + 4 * rank):
            mine = torch.full((4,), 1000.0 * rank + step, dtype=torch.float64)
            given += mine
            total += hvd.partial_allreduce(mine, name, quorum=quorum, op=hvd.Sum)[0]
            hvd.allreduce(torch.ones(2), name="joined.metric")
        assert hvd.join() == size - 1
        total += hvd.flush_partial(total, name, quorum=quorum, op=hvd.Sum).wait()[0]
    assert torch.equal(total, hvd.allreduce(given, op=hvd.Sum, name="joined.all"))
    hvd.shutdown()


@ranks(3, more=(2,), fresh=True)
def test_groups_of_a_plan_are_rounds_of_their_own(rank: int, size: int) -> None:
    hand = ByHand().start()
    names = [f"grouped.{n}" for n in range(5)]
    total, given = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)

    def step(value: float, order: list[str]) -> None:
        nonlocal total, given
        mine = torch.full((3,), value, dtype=torch.float64)
        answers = [hvd.partial_allreduce_async(mine, name, op=hvd.Sum, **SOLO) for name in order]
        given += mine * len(order)
        total += sum(answer.wait()[0] for answer in answers)

    step(1.0, names)
    hvd.barrier()
    known = hand.names("grouped.")
    hand.follow([sorted(known)[:2], sorted(known)[2:4]], timeout_s=5.0)
    messages = Messages()
    hvd.barrier()
    for turn in range(size):
        # One at a time, so that rounds are made by single ranks.
        if turn == rank:
            for number in range(4):
                step(10.0 * rank + number, names[number % 2 :] + names[: number % 2])
        hvd.barrier()
    messages_of_steps = messages.stop()
    sizes = [sorted(len(message) for message in one if "grouped." in message[0]) for one in messages_of_steps if one]
    assert [1, 2, 2] in sizes, sizes
    # Names that are not called for a while delay the others of their group by at most the timeout.
    hand.follow([sorted(known)[:2], sorted(known)[2:4]], timeout_s=0.2)
    for _ in range(2):
        if rank == 0:
            step(3.0, names[:1])
    hvd.barrier()
    flushes = [hvd.flush_partial(total, name, op=hvd.Sum, **SOLO) for name in names]
    total += sum(flush.wait()[0] for flush in flushes)
    assert torch.equal(total, hvd.allreduce(given, op=hvd.Sum, name="grouped_all"))
    hand.end()


def _rounds(rank: int, size: int, file: str) -> None:
    for _ in range(3):
        hvd.partial_allreduce(torch.ones(3), "traced", quorum=size)
    hvd.barrier()
    hvd.flush_partial(torch.ones(3), "traced", quorum=size).wait()
    timelines.reach(Path(file), rank, "traced.end")
    hvd.shutdown()


def test_timeline_has_the_rounds(tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    run_ranks(_rounds, 2, str(file), env={"HOROVOD_TIMELINE": str(file)}, fresh=True)
    events = timelines.events(file)
    (track,) = {one["pid"] for one in events if one.get("args", {}).get("name") == "allreduce.traced.rounds"}
    said = [one["name"] for one in events if one.get("pid") == track and one.get("ph") == "B"]
    assert said == [
        *(word for n in range(3) for word in ("ALLREDUCE", f"ROUND_{n}_FRESH_CARRIED_0", "FRESH_2_OF_2")),
        *("ALLREDUCE", "ROUND_3_FLUSH_CARRIED_0", "FRESH_0_OF_2"),
    ]


def _stays_away(rank: int, size: int, notified: Path) -> None:
    for _ in range(3):
        hvd.partial_allreduce(torch.ones(3), "away", **SOLO)
    if rank == 1:
        ByHand.wait(notified.exists)
        return
    with pytest.raises(Exception, match=r"(?i)shut down|stall"):
        hvd.flush_partial(torch.ones(3), "away", **SOLO).wait()
    notified.touch()


def test_rank_that_leaves_for_good_is_reported_after_the_limit(tmp_path: Path) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    run_ranks(_stays_away, 2, tmp_path / "notified", env=env, fresh=True)
