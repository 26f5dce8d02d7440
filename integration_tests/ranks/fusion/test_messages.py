"""Messages equal the plan: in Horovod's timeline, in our own record, and beyond the size of its buffer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import torch

from integration_tests.support import timelines
from integration_tests.support.merging import ByHand, Messages
from integration_tests.support.ranks import ranks, run_ranks

STEPS = 12
TENSORS = 9
# Groups of any members, in an order that is neither that of sizes nor that of arrival; 3 and 8 are in no group.
GROUPS = [[4, 1], [0], [7, 2, 6], [5]]
UNPLANNED = {3, 8}


def _operations(path: Path) -> list[tuple[set[str], set[str]]]:
    """Messages in a timeline, in order: (tensors, tensors that went through the fusion buffer).

    One thread performs one message after another: tensors whose reductions overlap are in one message.
    """
    events = timelines.events(path)
    named = [event for event in events if event.get("name") == "process_name" and "name" in event["args"]]
    names = {event["pid"]: event["args"]["name"] for event in named}
    messages: list[tuple[set[str], set[str]]] = []
    stacks: dict[int, list[str]] = {pid: [] for pid in names}
    under_way: set[int] = set()
    for event in events:
        pid, phase = int(event.get("pid", -1)), event.get("ph")
        if pid not in names or phase not in ("B", "E"):
            continue
        stack = stacks[pid]
        if phase == "E":
            if stack and stack.pop() == "ALLREDUCE":
                under_way.remove(pid)
            continue
        stack.append(event["name"])
        if event["name"] == "ALLREDUCE":
            if not under_way:
                messages.append((set(), set()))
            under_way.add(pid)
            messages[-1][0].add(names[pid])
        elif event["name"] == "MEMCPY_IN_FUSION_BUFFER":
            messages[-1][1].add(names[pid])
    return messages


def _train_by_plan(rank: int, size: int, timeline: str | None) -> None:
    import horovod.torch as hvd

    hvd.init()
    hand = ByHand("torch").start()
    for step in range(2 * STEPS):
        if step == 1:
            name_of = [f"allreduce.line.{n}" for n in range(TENSORS)]
            hand.follow([[name_of[n] for n in group] for group in GROUPS])
        if step == STEPS:
            if rank == 0 and timeline:
                hvd.start_timeline(timeline, False)
            if timeline:  # it is on from some later cycle on
                timelines.reach(Path(timeline), rank, "line.begin")
            record = Messages("torch")
        handles = []
        for n in range(TENSORS):
            tensor = torch.full((3 * n + 1,), float(rank + n + step))
            handles.append(hvd.allreduce_async(tensor, name=f"line.{n}", op=hvd.Sum))
            time.sleep(0.002)  # Horovod's own merging would send several messages, differently in each step
        for n, handle in enumerate(handles):
            expected = size * (size - 1) / 2 + size * (n + step)
            assert hvd.synchronize(handle).tolist() == [expected] * (3 * n + 1)
    steps = record.stop()
    assert len(steps) == STEPS
    planned = {frozenset(name_of[n] for n in group) for group in GROUPS}
    for messages in steps:
        found = [frozenset(message) for message in messages]
        loose = {name_of[n] for n in UNPLANNED}
        assert {message for message in found if not message & loose} == planned, found
        assert len(found) == len(set(found))
        assert set().union(*(message for message in found if message & loose)) == loose, found
    hand.end()
    if timeline:
        timelines.reach(Path(timeline), rank, "line.end")
    if rank == 0 and timeline:
        hvd.stop_timeline()


def test_timeline_and_record_show_exactly_the_messages_of_the_plan(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    run_ranks(_train_by_plan, 3, str(timeline), env={"HOROVOD_TIMELINE": "DYNAMIC"})
    messages = [(tensors, through) for tensors, through in _operations(timeline) if "allreduce.line." in str(tensors)]
    expected = {frozenset(f"allreduce.line.{n}" for n in group) for group in GROUPS}
    loose = {f"allreduce.line.{n}" for n in UNPLANNED}
    counts: dict[frozenset[str], int] = {}
    for tensors, through in messages:
        assert through == (tensors if len(tensors) > 1 else set())
        if not tensors & loose:
            counts[frozenset(tensors)] = counts.get(frozenset(tensors), 0) + 1
        else:
            assert tensors <= loose, "a tensor of a group travelled with one that is in none"
    assert counts == dict.fromkeys(expected, STEPS)


@ranks(3, hvd="horovod.tensorflow")
def test_tensorflow_messages_are_those_of_the_plan(rank: int, size: int, hvd: Any) -> None:
    hand = ByHand("tensorflow").start()

    @tf.function(reduce_retracing=True)
    def exchange(first: Any) -> list[Any]:
        return [
            hvd.allreduce(tf.fill([3 * n + 1], first + float(n)), name=f"flow.{n}", op=hvd.Sum) for n in range(TENSORS)
        ]

    names: list[str] = []
    for step in range(STEPS):
        if step == 1:
            names = sorted(hand.names("flow."), key=lambda name: name.rpartition("flow.")[2])
            assert len(names) == TENSORS
            hand.follow([[names[n] for n in group] for group in GROUPS])
            record = Messages("tensorflow")
        for n, result in enumerate(exchange(tf.constant(float(rank + step)))):
            assert result.numpy().tolist() == [size * (size - 1) / 2 + size * (n + step)] * (3 * n + 1)
    steps = record.stop()
    assert len(steps) == STEPS - 1
    planned = {frozenset(names[n] for n in group) for group in GROUPS}
    loose = {names[n] for n in UNPLANNED}
    for messages in steps:
        assert {frozenset(message) for message in messages if not set(message) & loose} == planned
    hand.end()


_LARGE = [70_001, 400_003, 250_000, 1, 328_574]  # elements of float32: 4.2 MB together
_LIMIT_BYTES = 1 << 20


def _padded(elements: int) -> int:
    return (4 * elements + 15) // 16 * 16


@ranks(3, env={"HOROVOD_FUSION_THRESHOLD": str(_LIMIT_BYTES)})
def test_group_that_is_larger_than_horovods_buffer(rank: int, size: int) -> None:
    import horovod.torch as hvd

    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    hand, of_pair = ByHand("torch"), ByHand("torch", pair.process_set_id)
    hand.start()
    if pair.included():
        of_pair.agreed()

    def exchange(label: str, process_set: Any, step: int) -> None:
        ranks_there = process_set.ranks or range(size)
        tensors = [torch.arange(n, dtype=torch.float32) % 97 + (rank + step) for n in _LARGE]
        handles = [
            hvd.allreduce_async_(tensor, name=f"large.{label}.{n}", op=hvd.Sum, process_set=process_set)
            for n, tensor in enumerate(tensors)
        ]
        for n, handle in enumerate(handles):
            whole = (torch.arange(_LARGE[n], dtype=torch.float32) % 97 + step) * len(ranks_there) + sum(ranks_there)
            assert torch.equal(hvd.synchronize(handle), whole)

    def sent(label: str, process_set: Any) -> list[list[int]]:
        record = Messages("torch")
        exchange(label, process_set, 1)
        (messages,) = record.stop()
        return [sorted(int(name.rpartition(".")[2]) for name in message) for message in messages]

    def within_horovods_limit(messages: list[list[int]]) -> None:
        assert sorted(n for message in messages for n in message) == list(range(len(_LARGE)))
        assert len(messages) > 1
        for message in messages:
            assert len(message) == 1 or sum(_padded(_LARGE[n]) for n in message) <= _LIMIT_BYTES

    exchange("all", hvd.global_process_set, 0)
    hand.follow([hand.names("large.all")])
    assert sent("all", hvd.global_process_set) == [list(range(len(_LARGE)))]
    # Meanwhile the limit is unchanged: for tensors in no plan, and for plans of smaller process sets.
    within_horovods_limit(sent("own", hvd.global_process_set))
    status = hand.bridge.status(0)
    assert status is not None
    # Horovod rounds its limit up to 512 bytes for each rank of a host.
    assert _LIMIT_BYTES <= status.threshold_bytes < _LIMIT_BYTES + 512 * size
    if pair.included():
        exchange("pair", pair, 0)
        of_pair.follow([of_pair.names("large.pair")])
        within_horovods_limit(sent("pair", pair))
    exchange("all", hvd.global_process_set, 2)
    hand.follow([hand.names("large.all.0")])
    exchange("all", hvd.global_process_set, 3)
    hand.end()


@pytest.mark.parametrize("capacity", [0, 3])
def test_without_a_cache_and_with_a_small_one(capacity: int) -> None:
    """Every step is negotiated, or tensors push each other out of the cache."""
    run_ranks(_train_by_plan, 3, None, env={"HOROVOD_CACHE_CAPACITY": str(capacity)})
