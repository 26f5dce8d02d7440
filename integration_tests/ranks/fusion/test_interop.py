"""Merging in addition to other features of Horovod: process sets, users' groups, other types, other collectives."""

from __future__ import annotations

import random
import time
from typing import Any

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.merging import ByHand, Messages
from integration_tests.support.ranks import ranks

STEPS = 12
_DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


def _sum(process_set: Any, size: int, step: int, number: int) -> float:
    members = process_set.ranks or range(size)
    return float(sum(100 * member + step + number for member in members))


@ranks(4, env=_DYNAMIC)
def test_process_sets_with_plans_of_their_own(rank: int, size: int) -> None:
    parity = [hvd.add_process_set([0, 2]), hvd.add_process_set([1, 3])]
    own = parity[rank % 2]
    sets = [hvd.global_process_set, own]
    hands = [ByHand("torch", one.process_set_id) for one in sets]
    hands[0].start()
    hands[1].agreed()
    chance = random.Random(rank)
    groups = [[[0, 1, 2, 3, 4, 5, 6]], [[6, 0], [3, 1, 2], [5]] if rank % 2 else [[5, 4, 3], [2, 1, 0]]]
    for step in range(STEPS):
        if step in (2, STEPS // 2):
            for place, hand in enumerate(hands):
                # In the second half they change places: a plan of one set is none of the other's business.
                plan = groups[place if step == 2 else 1 - place]
                if place == 0 and step > 2:
                    plan = [[1, 2], [3, 4, 5]]
                names = [f"allreduce.sets.{place}.{n}" for n in range(7)]
                hand.follow([[names[n] for n in group] for group in plan])
        operations = [(place, n) for place in range(2) for n in range(7)]
        chance.shuffle(operations)
        handles = {}
        for place, n in operations:
            tensor = torch.full((n + 1,), float(100 * rank + step + n))
            handles[place, n] = hvd.allreduce_async_(
                tensor, name=f"sets.{place}.{n}", op=hvd.Sum, process_set=sets[place]
            )
        for place, n in operations:
            result = hvd.synchronize(handles[place, n])
            assert result.tolist() == [_sum(sets[place], size, step, n)] * (n + 1)
    versions = [hand.state().version for hand in hands]
    assert versions == [2, 2], versions
    assert [hand.expired() for hand in hands] == [0, 0]
    for hand in hands:
        hand.end()
    for one in parity:
        hvd.remove_process_set(one)


@ranks(4, env=_DYNAMIC, fresh=True)
def test_process_set_that_takes_over_the_number_of_a_removed_one(rank: int, size: int) -> None:
    """Horovod gives numbers again: nothing of the removed set may be left on the ranks that were in it."""
    first = hvd.add_process_set([0, 1])
    number = first.process_set_id
    hand = ByHand("torch", number)
    ByHand("torch").start()
    names = [f"again.{n}" for n in range(5)]

    def step_of(process_set: Any, step: int, order: list[int]) -> None:
        if process_set.included():
            tensors = [torch.full((n + 1,), float(100 * rank + step + n)) for n in range(5)]
            handles = {
                n: hvd.allreduce_async_(tensors[n], name=names[n], op=hvd.Sum, process_set=process_set) for n in order
            }
            for n, handle in handles.items():
                assert hvd.synchronize(handle).tolist() == [_sum(process_set, size, step, n)] * (n + 1)

    if first.included():
        hand.agreed()
    for step in range(4):
        step_of(first, step, [0, 1, 2, 3, 4])
        if step == 1 and first.included():
            hand.follow([hand.names("again.")[:3], hand.names("again.")[3:]])
    hvd.remove_process_set(first)
    second = hvd.add_process_set([1, 2, 3])
    assert second.process_set_id == number
    hand = ByHand("torch", number)
    if second.included():
        ByHand.wait(lambda: (status := hand.bridge.status(number)) is not None and status.size == 3)
        hand.agreed()
    for step in range(4):
        step_of(second, step, [2, 4, 0, 3, 1])
        if step == 1 and second.included():
            hand.follow([hand.names("again.")])
    if second.included():
        hand.end()
    ByHand("torch").end()
    hvd.remove_process_set(second)


@ranks(3)
def test_users_groups_across_the_groups_of_the_plan(rank: int, size: int) -> None:
    hand = ByHand("torch").start()
    # The user's groups: 0-3, 4-6, 7 alone. The plan's: across them, in another order, one of them unplanned.
    users = [[0, 1, 2, 3], [4, 5, 6], [7]]
    chance = random.Random(rank)
    for step in range(2 * STEPS):
        if step == 2:
            known = hand.names("users.")
            names = [_matching(known, f"users.{g}", at) for g, group in enumerate(users) for at in range(len(group))]
            hand.follow([[names[n] for n in group] for group in [[6, 1], [7, 0, 4], [2, 5]]])
        order = list(range(len(users)))
        chance.shuffle(order)
        handles = {}
        for g in order:
            tensors = [torch.full((n + 2,), float(100 * rank + step + n)) for n in users[g]]
            handles[g] = hvd.grouped_allreduce_async_(tensors, name=f"users.{g}", op=hvd.Sum)
            time.sleep(chance.choice([0, 0.005]))  # a group of the plan is complete some cycles after its first member
        for g in order:
            for n, result in zip(users[g], hvd.synchronize(handles[g]), strict=True):
                assert result.tolist() == [_sum(hvd.global_process_set, size, step, n)] * (n + 2), (step, n)
    hand.end()


def _matching(known: list[str], label: str, at: int) -> str:
    """The name that Horovod gave to a member of a group."""
    found = sorted(name for name in known if label in name)
    return found[at]


@ranks(3, more=(5,))
def test_types_operations_and_factors_that_cannot_share_a_message(rank: int, size: int) -> None:
    hand = ByHand("torch").start()
    kinds = [torch.float32, torch.float16, torch.int32, torch.float64, torch.float32, torch.int32, torch.float16]
    operations = {5: hvd.Max, 4: hvd.Average}
    record = None
    for step in range(6):
        if step == 1:
            hand.follow([[f"allreduce.mixed.{n}" for n in range(8)]])
            record = Messages("torch")
        handles = []
        for n in range(8):
            tensor = torch.full((n + 3,), rank * 2 + n, dtype=kinds[n % 7])
            factor = 0.5 if n == 7 else 1.0
            operation = operations.get(n, hvd.Sum)
            handles.append(hvd.allreduce_async_(tensor, name=f"mixed.{n}", op=operation, postscale_factor=factor))
        for n, handle in enumerate(handles):
            whole = size * (size - 1) + size * n
            expected = {4: whole / size, 5: 2 * (size - 1) + n, 7: whole / 2}.get(n, whole)
            result = hvd.synchronize(handle)
            assert result.dtype == kinds[n % 7]
            assert result.tolist() == [expected] * (n + 3)
    assert record is not None
    for messages in record.stop():
        # float32: a sum, an average (a sum with a factor), a sum with another factor; int32: a sum and a maximum.
        assert sorted(sorted(int(name[-1]) for name in message) for message in messages) == [
            [0], [1, 6], [2], [3], [4], [5], [7],
        ]  # fmt: skip
    assert hand.expired() == 0
    hand.end()


@ranks(3, more=(5,))
def test_other_collectives_in_between(rank: int, size: int) -> None:
    hand = ByHand("torch").start()
    for step in range(STEPS):
        if step in (1, STEPS // 2):
            names = [f"allreduce.between.{n}" for n in range(6)]
            hand.follow([names[:2], names[2:]] if step == 1 else [names[3:], names[1:3]])

        def start(n: int, step: int = step) -> Any:
            tensor = torch.full((n + 1,), float(100 * rank + step + n))
            return hvd.allreduce_async(tensor, name=f"between.{n}", op=hvd.Sum)

        handles = [start(0), start(1), start(2)]
        sent = hvd.broadcast_async(torch.full((5,), float(rank + step)), 1, name="between.broadcast")
        handles += [start(3)]
        gathered = hvd.allgather(torch.full((rank + 1, 2), float(rank + step)), name="between.allgather")
        assert gathered[:, 0].tolist() == [r + step for r in range(size) for _ in range(r + 1)]
        scattered = hvd.reducescatter(torch.full((size, 2), float(rank + step)), name="between.scatter", op=hvd.Sum)
        assert scattered.tolist() == [[size * (size - 1) / 2 + size * step] * 2]
        exchanged = hvd.alltoall(torch.full((size,), float(rank + step)), name="between.alltoall")
        assert exchanged.tolist() == [r + step for r in range(size)]
        handles += [start(4)]
        hvd.barrier()
        handles += [start(5)]
        assert hvd.synchronize(sent).tolist() == [1.0 + step] * 5
        for n, handle in enumerate(handles):
            assert hvd.synchronize(handle).tolist() == [_sum(hvd.global_process_set, size, step, n)] * (n + 1)
    hand.end()


@ranks(3)
def test_shape_that_differs_between_ranks_is_an_error_and_the_plan_goes_on(rank: int, size: int) -> None:
    hand = ByHand("torch").start()
    for step in range(8):
        if step == 1:
            hand.follow([[f"allreduce.shapes.{n}" for n in range(4)]], timeout_s=0.3)
        wrong = step in (3, 5)
        handles = [
            hvd.allreduce_async(
                torch.full((n + 1 + int(wrong and n == 2 and rank == 1),), float(100 * rank + step + n)),
                name=f"shapes.{n}", op=hvd.Sum,
            )
            for n in range(4)
        ]  # fmt: skip
        for n, handle in enumerate(handles):
            if wrong and n == 2:
                with pytest.raises(hvd.HorovodInternalError, match="shape"):
                    hvd.synchronize(handle)
            else:
                assert hvd.synchronize(handle).tolist() == [_sum(hvd.global_process_set, size, step, n)] * (n + 1)
    assert hand.expired() == 0
    hand.end()
