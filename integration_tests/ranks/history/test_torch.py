"""Histories of PyTorch have no violations, and have everything that was done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from integration_tests.support.arming import ARMED, CALM_S, is_armed, meet, state, step_armed
from integration_tests.support.histories import checked, counts, history, train
from integration_tests.support.merging import ByHand, repeat
from integration_tests.support.ranks import RankFailed, run_ranks
from integration_tests.support.torch_training import loss_of, net, update
from paceline.history.checks.checker import check
from paceline.history.checks.results import Check

STEPS = 24
TENSORS = 4  # parameters of the net, where no bucket merges them


class OthersSGD(torch.optim.SGD):
    """An optimizer that is not known to be element-wise."""


def _train(rank: int, size: int, folder: str, exchange: Callable[[Any, int], Any], late: float, **options: Any) -> None:
    with history(folder) as hvd:
        model = net()
        made = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        chosen = exchange(hvd, size)
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), exchange=chosen, **options)
        train(rank, hvd, STEPS, model, optimizer, late)
        optimizer.drain()


def _of(name: str) -> Callable[[Any, int], Any]:
    return {
        "sync": lambda hvd, size: "sync",
        "k2": lambda hvd, size: "pipelined",
        "k4": lambda hvd, size: hvd.Pipelined(k=4, warmup_steps=5),
        "majority": lambda hvd, size: "majority",
        "quorum": lambda hvd, size: hvd.Partial(quorum=size - 1, max_lag=3),
        "synced": lambda hvd, size: hvd.Partial(quorum="solo", sync_every=6),
        "split": lambda hvd, size: "split",
        "whole": lambda hvd, size: hvd.Split(independent=True),
        "local": lambda hvd, size: hvd.Local(sync_every=4),
        "outer": lambda hvd, size: hvd.Local(sync_every=4, outer_momentum=0.9, fragments=2, delay=1),
    }[name]


def _body(rank: int, size: int, folder: str, name: str) -> None:
    late = 0.5 if name in ("majority", "quorum", "synced") else 0.0
    options = {} if name in ("local", "outer") else {"bucket_bytes": 0}
    _train(rank, size, folder, _of(name), late, **options)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["sync", "k2", "k4"])
def test_results_are_sums_of_one_step(name: str, size: int, tmp_path: Path) -> None:
    run_ranks(_body, size, str(tmp_path), name)
    results = checked(tmp_path, "sync" if name == "sync" else "pipelined")
    found = counts(tmp_path)
    assert len(found) == size
    for one in found:
        assert one["produced"] == one["applied"] == STEPS * TENSORS
        assert one["world"] == one["exchange"] == one["ended"] == one["drained"] == 1
        assert one["step"] == STEPS
        assert one["updated"] == STEPS - {"sync": 0, "k2": 1, "k4": 3}[name]
    sums = results[Check.SUM]
    assert sums.compared == sums.sensitive == STEPS * TENSORS and not sums.skipped
    assert results[Check.SAME].compared == STEPS * TENSORS * (size - 1)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["majority", "quorum", "synced"])
def test_late_gradients_are_in_later_rounds(name: str, size: int, tmp_path: Path) -> None:
    run_ranks(_body, size, str(tmp_path), name)
    results = checked(tmp_path, "partial")
    for one in counts(tmp_path):
        assert one["produced"] == STEPS * TENSORS
        assert STEPS * TENSORS <= one["applied"] <= (STEPS + 1) * TENSORS
        assert one["put"] == one["averaged"] == (TENSORS * (STEPS // 6 + 1) if name == "synced" else 0)
    assert results[Check.KEPT].compared == size * STEPS * TENSORS
    assert results[Check.SUM].compared >= size * STEPS * TENSORS and not results[Check.SUM].skipped
    assert results[Check.SUM].sensitive > 0
    assert bool(results[Check.MEAN].compared) == (name == "synced")
    assert bool(results[Check.STALE].compared) == (name == "quorum")


def _owners(rank: int, size: int, folder: str, name: str) -> None:
    """A net of several buckets."""
    with history(folder) as hvd:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(5, 9000), torch.nn.Tanh(), torch.nn.Linear(9000, 3))
        kind = OthersSGD if name == "whole" else torch.optim.SGD
        made = kind(model.parameters(), lr=0.001, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), exchange=_of(name)(hvd, size))
        train(rank, hvd, STEPS, model, optimizer)
        optimizer.drain()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["split", "whole"])
def test_weights_of_owners_reach_all_ranks(name: str, size: int, tmp_path: Path) -> None:
    run_ranks(_owners, size, str(tmp_path), name)
    results = checked(tmp_path, "split")
    found = counts(tmp_path)
    produced = found[0]["produced"]  # of each bucket and step
    assert produced >= 2 * STEPS
    applied = [one["applied"] for one in found]
    if name == "split":  # every rank has a shard of every bucket
        assert applied == [produced] * size
    else:
        assert sum(applied) == produced and all(one < produced for one in applied)
    assert results[Check.SUM].compared == results[Check.SUM].sensitive == produced
    assert results[Check.WEIGHTS].compared == STEPS * TENSORS * (size - 1)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", ["local", "outer"])
def test_averages_are_means_of_all_ranks(name: str, size: int, tmp_path: Path) -> None:
    run_ranks(_body, size, str(tmp_path), name)
    results = checked(tmp_path, "local")
    averages = STEPS // 4  # of each weight; no update is left to the drain
    for one in counts(tmp_path):
        assert one["produced"] == one["applied"] == STEPS * TENSORS
        assert one["put"] == one["averaged"] >= averages * TENSORS
    assert results[Check.MEAN].compared >= averages * TENSORS and not results[Check.MEAN].skipped
    assert results[Check.WEIGHTS].compared >= averages * TENSORS * (size - 1)


def _armed(rank: int, size: int, folder: str) -> int:
    with history(folder) as hvd:
        model = net()
        made = torch.optim.SGD(model.parameters(), lr=0.01)
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters("history"), bucket_bytes=0)

        def step(number: int) -> None:
            update(optimizer, loss_of(model, rank, number))

        hand = ByHand("torch").start()
        step(0)
        meet()
        names = sorted(one for one in hand.names("history") if not one.endswith(".layouts"))
        hand.follow([names[:2], names[2:]], CALM_S)
        begun = repeat("torch", step, is_armed, 1, state)
        return step_armed(step, STEPS, begin=begun)


@pytest.mark.parametrize("size", [2, 3])
def test_armed_steps(size: int, tmp_path: Path) -> None:
    (steps,) = set(run_ranks(_armed, size, str(tmp_path), env=ARMED))
    results = checked(tmp_path, "sync")
    for one in counts(tmp_path):
        assert one["produced"] == one["applied"] == steps * TENSORS
    assert results[Check.SUM].compared == results[Check.SUM].sensitive == steps * TENSORS


def _buckets(rank: int, size: int, folder: str) -> None:
    _train(rank, size, folder, _of("sync"), 0.0, bucket_bytes=4096)


def test_a_bucket_is_one_tensor(tmp_path: Path) -> None:
    run_ranks(_buckets, 2, str(tmp_path))
    checked(tmp_path, "sync")
    assert all(one["produced"] == one["applied"] == STEPS for one in counts(tmp_path))


def _weighted(rank: int, size: int, folder: str, name: str) -> None:
    with history(folder) as hvd:
        model = net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), exchange=name
        )

        def weigh(step: int) -> None:
            optimizer.weight = (rank + step) % 3

        train(rank, hvd, STEPS, model, optimizer, each=weigh)
        optimizer.drain()


@pytest.mark.parametrize("name", ["sync", "pipelined", "local"])
def test_weighted_gradients(name: str, tmp_path: Path) -> None:
    run_ranks(_weighted, 3, str(tmp_path), name)
    results = checked(tmp_path, name)
    assert not results[Check.SUM].skipped and not results[Check.MEAN].skipped


def _discards(rank: int, size: int, folder: str, exchange: str) -> None:
    with history(folder) as hvd:
        model = net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), exchange=exchange
        )
        for step in range(STEPS):
            loss_of(model, rank, step).backward()
            if step % 5 == 3:
                if step % 2:
                    optimizer.synchronize()
                optimizer.discard()
            else:
                optimizer.step()
                optimizer.zero_grad()
        optimizer.drain()


@pytest.mark.parametrize("name", ["sync", "pipelined", "majority"])
def test_discarded_gradients_are_not_missed(name: str, tmp_path: Path) -> None:
    run_ranks(_discards, 2, str(tmp_path), name)
    checked(tmp_path, "partial" if name == "majority" else name)
    assert all(one["lost"] >= 5 for one in counts(tmp_path))


def _two_worlds(rank: int, size: int, folder: str) -> None:
    model = net()
    optimizer: Any = None
    for world in range(2):
        with history(folder) as hvd:
            if optimizer is None:
                made = torch.optim.SGD(model.parameters(), lr=0.05)
                optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), exchange="pipelined")
            train(rank, hvd, STEPS, model, optimizer)
            if world:
                optimizer.drain()


def test_a_new_world_begins_anew(tmp_path: Path) -> None:
    run_ranks(_two_worlds, 2, str(tmp_path))
    checked(tmp_path, "pipelined")
    for one in counts(tmp_path):
        assert one["world"] == one["exchange"] == one["ended"] == 2
        assert one["step"] == 2 * STEPS


def _saved(rank: int, size: int, folder: str, exchange: str) -> None:
    """Rank 1 is through early, so that its state has the results of partial rounds that it has missed."""
    with history(folder) as hvd:
        model = net()
        states: list[Any] = []
        for life in range(2):
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), exchange=exchange
            )
            if states:
                optimizer.load_state_dict(states[0])
            train(rank, hvd, 5, model, optimizer, each=lambda step: time.sleep(0.03 if rank == 0 else 0))
            hvd.barrier()
            states.append(optimizer.state_dict())
            hvd.barrier()
            if life:
                optimizer.drain()
            else:
                optimizer.forget()


@pytest.mark.parametrize("name", ["pipelined", "majority"])
def test_gradients_of_a_saved_state(name: str, tmp_path: Path) -> None:
    run_ranks(_saved, 2, str(tmp_path), name)
    results = checked(tmp_path, "pipelined" if name == "pipelined" else "partial")
    assert results[Check.PRODUCED if name == "pipelined" else Check.SUM].skipped
    assert name == "pipelined" or results[Check.SAME].skipped


def _killed(rank: int, size: int, folder: str, exchange: str) -> None:
    with history(folder) as hvd:
        model: Any = net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(), exchange=exchange, bucket_bytes=0
        )
        passes: list[int] = []

        def die(gradient: torch.Tensor) -> None:
            passes.append(1)
            if rank == 1 and len(passes) == STEPS // 2:  # others may have results of what it has submitted by then
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGKILL)

        model[0].weight.register_hook(die)
        train(rank, hvd, STEPS, model, optimizer)


@pytest.mark.parametrize("name", ["sync", "pipelined", "majority"])
def test_a_rank_that_is_killed_leaves_what_it_has_done(name: str, tmp_path: Path) -> None:
    with pytest.raises(RankFailed):
        run_ranks(_killed, 2, str(tmp_path), name, fresh=True)
    results = check(tmp_path)
    assert not results.violations, results.violations[:5]
    survivor, killed = counts(tmp_path)
    assert survivor["ended"] == 1 and not killed["ended"]
    assert killed["step"] == STEPS // 2 - 1 and killed["produced"] >= killed["step"] * TENSORS
    if name == "majority":  # gradients of the lost rank may be in any round
        assert results[Check.SUM].skipped and not results[Check.SUM].compared
    else:
        assert results[Check.SUM].compared >= (STEPS // 2 - 2) * TENSORS
        assert sum(results.lost.values()) >= 1
