"""Partial rounds where ranks are in several process sets: what holds a rank up in one, holds it up in all."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import run_ranks

ENV = {"HOROVOD_CYCLE_TIME": "1"}  # the default; these ranks are not shared with tests that have no process sets
# Partial rounds of all ranks and a full allreduce of two of them; two sets that overlap, each with both.
WORLDS: dict[str, list[list[int]]] = {"within": [[0, 1, 2, 3], [1, 2]], "overlapping": [[0, 1, 2], [1, 2, 3]]}
QUORA = ("random", "majority", "solo", "all")

_made: dict[tuple[int, ...], Any] = {}  # this process's sets


def _process_sets(hvd: Any, size: int) -> dict[tuple[int, ...], Any]:
    """By ranks; made once in the life of a process."""
    if not _made:
        several = sorted({tuple(one) for world in WORLDS.values() for one in world if len(one) < size})
        _made.update({one: hvd.ProcessSet(one) for one in several})
        hvd.shutdown()
        hvd.init(process_sets=list(_made.values()))
        _made[tuple(range(size))] = hvd.global_process_set
    return _made


def _sets(rank: int, size: int, world: str, quorum: str, steps: int, pause_ms: float, seed: int) -> None:
    made = _process_sets(hvd, size)
    sets = {n: (made[tuple(one)], one) for n, one in enumerate(WORLDS[world]) if rank in one}
    partial = [0] if world == "within" else [0, 1]  # the sets with partial rounds
    full = [1] if world == "within" else [0, 1]  # with full allreduces
    label = f"{world}.{quorum}.{steps}.{seed}"
    chance = random.Random(1000 * seed + rank)
    total = {n: torch.zeros(5, dtype=torch.float64) for n in sets if n in partial}
    given = {n: torch.zeros(5, dtype=torch.float64) for n in sets if n in partial}

    def choices(n: int) -> dict[str, Any]:
        process_set, members = sets[n]
        return {"op": hvd.Sum, "process_set": process_set, "quorum": len(members) if quorum == "all" else quorum}

    for step in range(steps):
        time.sleep(chance.random() * pause_ms * 1e-3)
        mine = torch.arange(5, dtype=torch.float64) + 1000.0 * rank + step
        for n in total:
            given[n] += mine
            total[n] += hvd.partial_allreduce(mine, f"{label}.partial.{n}", **choices(n))[0]
        for n in full:
            if n in sets:
                process_set, members = sets[n]
                one = hvd.allreduce(mine, name=f"{label}.full.{n}", op=hvd.Sum, process_set=process_set)
                expected = len(members) * (torch.arange(5, dtype=torch.float64) + step) + 1000.0 * sum(members)
                assert torch.equal(one, expected), (n, step, one, expected)
    for n in total:
        total[n] += hvd.flush_partial(total[n], f"{label}.partial.{n}", **choices(n)).wait()[0]
        everything = hvd.allreduce(given[n], name=f"{label}.given.{n}", op=hvd.Sum, process_set=sets[n][0])
        assert torch.equal(total[n], everything), (n, total[n], everything)
    hvd.barrier()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("quorum", QUORA)
def test_no_set_waits_for_another(world: str, quorum: str) -> None:
    run_ranks(_sets, 4, world, quorum, 60, 30.0, 1, env=ENV)


@pytest.mark.more
# Long enough for the unlucky moment: ranks that served one set only used to hang.
@pytest.mark.parametrize(("world", "pause_ms", "seed"), [("within", 30.0, 2), ("overlapping", 10.0, 1)])
def test_no_moment_is_unlucky(world: str, pause_ms: float, seed: int) -> None:
    run_ranks(_sets, 4, world, "random", 300, pause_ms, seed, env=ENV)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("quorum", QUORA)
def test_no_set_waits_for_another_in_twenty_runs(world: str, quorum: str) -> None:
    for seed in range(20):
        run_ranks(_sets, 4, world, quorum, 300, 30.0, seed, env=ENV)
