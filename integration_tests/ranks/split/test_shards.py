"""Halves of an allreduce, negotiated and in armed steps, and what becomes of shards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.ranks.split.test_split import _Training
from integration_tests.support.arming import ARMED, arm, state, step_armed
from integration_tests.support.merging import ask_for, repeat, step_until
from integration_tests.support.ranks import ranks
from paceline.native.halves import ALL_GATHER_NAMES, REDUCE_SCATTER_NAMES, shard

SIZES = (0, 1, 2, 7, 64, 1001, 70_000)


def _check_halves(rank: int, size: int, label: str, dtype: torch.dtype) -> None:
    for count in SIZES:
        first, last = shard(count, rank, size)
        numbers = (torch.arange(count) % 50).to(dtype)
        brought = numbers + rank
        found = brought.clone()
        name = f"{REDUCE_SCATTER_NAMES}{label}.{dtype}.{count}"
        hvd.allreduce_(found, name=name, op=hvd.Sum)
        expected = numbers * size + sum(range(size))
        assert torch.equal(found[first:last], expected[first:last]), count
        found = torch.full((count,), -1.0, dtype=dtype)
        found[first:last] = brought[first:last]
        hvd.allreduce_(found, name=f"{ALL_GATHER_NAMES}{label}.{dtype}.{count}", op=hvd.Sum)
        for other in range(size):
            first, last = shard(count, other, size)
            assert torch.equal(found[first:last], (numbers + other)[first:last]), count


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@ranks(2, 3, more=(4, 5), hvd="paceline.torch")
def test_each_rank_has_its_shard_and_then_all_have_all(rank: int, size: int, hvd: Any, dtype: torch.dtype) -> None:
    _check_halves(rank, size, "plain", dtype)


@pytest.mark.parametrize("fusion", ["none", "optimal"])
@ranks(2, 3, more=(4, 5), env=ARMED, hvd="paceline.torch")
def test_armed_steps(rank: int, size: int, hvd: Any, fusion: str) -> None:
    """Both halves of all buckets go without negotiation after the first one."""
    training = _Training(rank, size, f"armed.{fusion}")
    ask_for("torch", fusion)
    step_until("torch", lambda _: training.step())
    before = state()
    step_armed(lambda _: training.step(), 10)
    training.check()  # when all of the last step has ended
    after, buckets = state(), len(set(training.optimizer._reduction.buckets.of.values()))
    each = (after.messages - before.messages) / (after.steps - before.steps)
    assert buckets > 1 and 1 < each <= 2 * buckets - 1, (each, buckets)
    assert each == 2 * buckets - 1 or fusion == "optimal" or after.fallbacks > before.fallbacks
    ask_for("torch", "threshold")


@ranks(2, 3, env=ARMED, hvd="paceline.torch")
def test_other_operations_between_the_halves(rank: int, size: int, hvd: Any) -> None:
    """Metrics and reads between steps: armed or aborted, numbers equal one process's."""
    training = _Training(rank, size, "between")
    ask_for("torch", "none")
    step_until("torch", lambda _: training.step())
    for number in range(30):
        training.step()
        if number % 7 == 3:
            assert float(hvd.allreduce(torch.tensor(float(rank)), name="between.metric")) == (size - 1) / 2
        if number % 7 == 5 and rank == number % size:
            training.model.state_dict()
    training.check()
    ask_for("torch", "threshold")


@ranks(2, 3, more=(4, 5), env=ARMED, hvd="paceline.torch")
def test_a_flag_that_one_rank_raises_in_a_half_ends_the_step_on_all(rank: int, size: int, hvd: Any) -> None:
    """One rank waits for another operation before its third half: nothing is lost or doubled."""
    names = [f"{half}flag.{n}" for half in (ALL_GATHER_NAMES, REDUCE_SCATTER_NAMES) for n in range(3)]
    tensors = {name: torch.zeros(10 * n + 1) for n, name in enumerate(names)}

    def step(number: int, late: bool = False) -> None:
        handles = {}
        for n, name in enumerate(names):
            first, last = shard(len(tensors[name]), rank, size)
            tensors[name].fill_(number + rank)
            if n < 3:
                tensors[name][:first] = tensors[name][last:] = -1.0
            if late and n == 4:
                handles["other"] = hvd.allreduce_async(torch.ones(2), name="flag.other", op=hvd.Sum)
                if rank == size - 1:
                    hvd.synchronize(handles.pop("other"))
            handles[name] = hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum)
        for handle in handles.values():
            hvd.synchronize(handle)
        for n, name in enumerate(names):
            for other in range(size) if n < 3 else [rank]:
                first, last = shard(len(tensors[name]), other, size)
                expected = number + other if n < 3 else number * size + sum(range(size))
                assert tensors[name][first:last].eq(expected).all(), (number, name)

    hand, number = arm(step, ".flag.", [1] * len(names))
    fallbacks = state().fallbacks

    def some(number: int) -> None:
        step(2 * number, late=True)
        step(2 * number + 1)

    repeat("torch", some, lambda: state().fallbacks > fallbacks, number)
    hand.end()


@ranks(2, 3)
def test_state_follows_shards_that_move(rank: int, size: int) -> None:
    """A parameter added later, a replaced one, and a load of the whole state: shards are computed again."""
    training = _Training(rank, size, "moves")
    for _ in range(3):
        training.step()
    # Buckets of other sizes: two ranks' ranges of every parameter change.
    buckets = training.optimizer._reduction.buckets
    training.optimizer.drain()
    buckets.forget()
    buckets._spans = lambda: 3
    for _ in range(3):
        training.step()
    training.check()
    training.optimizer.consolidate_state_dict(to=None)
    whole = training.optimizer.state_dict()
    for number, one in whole["state"].items():
        right = training.held_alone.state_dict()["state"][number]
        torch.testing.assert_close(one["exp_avg"], right["exp_avg"], rtol=1e-9, atol=1e-15)
    training.optimizer.load_state_dict(whole)
    for _ in range(3):
        training.step()
    training.check()
