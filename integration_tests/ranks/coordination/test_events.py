"""Ranks whose background threads sleep until an event occurs (wake=events): results, and costs."""

from __future__ import annotations

import importlib
import random
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import tensorflow as tf
import torch

from integration_tests.support.debug import debug
from integration_tests.support.ranks import World, ranks
from paceline.native.library import counters

EVENTS = debug(wake="events")
# A rank that waited for the end of one would be seen.
LONG_CYCLE = {**EVENTS, "HOROVOD_CYCLE_TIME": "200"}
# bridge/coordination/coordination.cc gives it this name.
THREAD = "horovod-events"


def _voluntary_switches() -> int:
    """Number of times that the background thread has gone to sleep."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == THREAD:
            lines = (task / "status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    raise AssertionError(f"no thread is called {THREAD}")


@ranks(2, 3, more=(4,), env=EVENTS)
def test_every_operation_has_its_result(rank: int, size: int) -> None:
    total = size * (size - 1) // 2
    for turn in range(20):
        # The first turn is negotiated; later ones are cached, except operations that are never cached.
        handles = [hvd.allreduce_async(torch.full((n + 1,), rank + n), name=f"all.{n}", op=hvd.Sum) for n in range(30)]
        gathered = hvd.allgather(torch.tensor([rank, turn]), name="gathered")
        for n, handle in enumerate(handles):
            assert hvd.synchronize(handle).tolist() == [total + n * size] * (n + 1)
        assert gathered.tolist() == [value for one in range(size) for value in (one, turn)]
        assert hvd.broadcast(torch.tensor([rank, turn]), 1, name="broadcast").tolist() == [1, turn]
        assert hvd.alltoall(torch.arange(size) + 10 * rank, name="alltoall").tolist() == [
            10 * one + rank for one in range(size)
        ]
        if turn % 5 == rank:
            time.sleep(0.02)  # the others sleep or wait when this one continues
    hvd.barrier()


def _sums_of_thread(label: str, rank: int, size: int, wrong: list[str]) -> None:
    own = random.Random(f"{label}.{rank}")
    for turn in range(30):
        time.sleep(own.random() * 0.003)
        found = hvd.allreduce(torch.tensor([rank + turn]), name=f"{label}.{turn % 3}", op=hvd.Sum).item()
        if found != size * (size - 1) // 2 + turn * size:
            wrong.append(f"{label}, turn {turn}: {found}")


@ranks(2, 3, more=(4,), env=EVENTS)
def test_threads_hand_in_side_by_side(rank: int, size: int) -> None:
    wrong: list[str] = []
    threads = [
        threading.Thread(target=_sums_of_thread, args=(f"thread.{n}", rank, size, wrong), daemon=True) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@ranks(2, 3, more=(4,), env=EVENTS)
def test_an_idle_rank_sleeps(rank: int, size: int) -> None:
    hvd.allreduce(torch.ones(3), name="before")
    hvd.barrier()
    time.sleep(0.3)
    before, seconds = _voluntary_switches(), 3
    time.sleep(seconds)
    per_second = (_voluntary_switches() - before) / seconds
    assert per_second < 20, (
        f"rank {rank} woke up {per_second:.0f} times per second; a rank with cycles does so 1,000 times"
    )
    assert hvd.allreduce(torch.tensor(1), op=hvd.Sum, name="after").item() == size


@ranks(2, 3, env={**EVENTS, "HOROVOD_CYCLE_TIME": "1000"})
def test_what_somebody_waits_for_does_not_wait_for_a_cycle(rank: int, size: int) -> None:
    for turn in range(3):
        hvd.allreduce(torch.tensor(turn), name="lone", op=hvd.Sum)
    for turn in range(500):  # waiting for half a cycle each time would take longer than a test may
        assert hvd.allreduce(torch.tensor(turn), name="lone", op=hvd.Sum).item() == turn * size


@ranks(2, 3, env=LONG_CYCLE)
def test_tensors_of_one_cycle_are_sent_together(rank: int, size: int) -> None:
    for turn in range(4):
        hvd.barrier()
        before = counters("torch")
        handles = []
        start_s = time.monotonic()
        for n in range(20):
            handles.append(hvd.allreduce_async(torch.ones(10), name=f"together.{n}", op=hvd.Sum))
            time.sleep(0.004)
        cycles = (time.monotonic() - start_s) / 0.2  # less than one, unless the machine is busy
        while not all(hvd.poll(handle) for handle in handles):  # without waiting for them
            time.sleep(0.01)
        for handle in handles:
            assert hvd.synchronize(handle).tolist() == [size] * 10
        after = counters("torch")
        # A rank's first operation is sent at once, the others at the end of a cycle; a barrier is a message, too.
        messages = after["messages"] - before["messages"]
        assert turn == 0 or messages <= 2 + size * (1 + cycles), f"{messages} for 20 tensors within {cycles:.1f} cycles"


@ranks(2, 3, more=(4,), env={**EVENTS, "HOROVOD_CACHE_CAPACITY": "20000"})
def test_more_cached_tensors_than_a_message_has_bits(rank: int, size: int) -> None:
    count = 5000  # a message of a round has room for 4,096 bits
    tensors = [torch.tensor([float(n)]) for n in range(count)]
    same, own = random.Random(3), random.Random(rank)
    for _ in range(5):
        chosen = same.sample(range(count), same.randint(1, count))
        own.shuffle(chosen)
        handles = {n: hvd.allreduce_async(tensors[n], name=f"many.{n}", op=hvd.Sum) for n in chosen}
        for n, handle in handles.items():
            assert hvd.synchronize(handle).item() == n * size


@ranks(3, more=(4,), env=EVENTS)
def test_process_sets_have_rounds_of_their_own(rank: int, size: int) -> None:
    sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2]), hvd.ProcessSet([2])]
    hvd.shutdown()
    hvd.init(process_sets=sets)
    own = random.Random(rank)
    for turn in range(30):
        for n, one in enumerate(sets):
            if one.included():
                total = hvd.allreduce(torch.tensor(rank + turn), name=f"set.{n}", op=hvd.Sum, process_set=one).item()
                assert total == sum(one.ranks) + turn * len(one.ranks)
        if own.random() < 0.2:
            time.sleep(0.01)
        if turn % 7 == 0:
            assert hvd.allreduce(torch.tensor(1), name="everybody", op=hvd.Sum).item() == size
    hvd.barrier()  # or one would shut down what the others still use
    hvd.shutdown()


@ranks(3, env={**EVENTS, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"})
def test_process_sets_come_and_go(rank: int, size: int) -> None:
    seconds = []
    for turn in range(5):
        time.sleep(0.1 * ((rank + turn) % 3))  # one rank submits first, and sleeps again when the last one submits
        start_s = time.monotonic()
        pair = hvd.add_process_set([0, 1 + turn % 2])
        if pair.included():
            assert hvd.allreduce(torch.tensor(5), name="pair", op=hvd.Sum, process_set=pair).item() == 10
        assert hvd.allreduce(torch.tensor(1), name="all", op=hvd.Sum).item() == size
        hvd.remove_process_set(pair)
        assert hvd.allreduce(torch.tensor(2), name="all.2", op=hvd.Sum).item() == 2 * size
        seconds.append(time.monotonic() - start_s)
    assert statistics.median(seconds) < 0.9, f"waited for a heartbeat: {seconds}"


@ranks(2, 3, more=(4,), env=EVENTS)
def test_ranks_join(rank: int, size: int) -> None:
    for turn in range(5):
        steps = [5 + 3 * ((one + turn) % size) for one in range(size)]
        for step in range(steps[rank]):
            present = sum(1 for other in steps if other > step)
            # Those that have joined give zeros.
            assert hvd.allreduce(torch.ones(2), name=f"join.{step % 2}", op=hvd.Sum).tolist() == [present] * 2
        last = hvd.join()
        assert steps[last] == max(steps)


@ranks(2, 3, env={**EVENTS, "HOROVOD_CACHE_CAPACITY": "0"})
def test_without_a_cache(rank: int, size: int) -> None:
    for turn in range(20):
        assert hvd.allreduce(torch.tensor(turn), name="uncached", op=hvd.Sum).item() == turn * size
        if turn % 4 == rank:
            time.sleep(0.02)
    before = _voluntary_switches()
    time.sleep(1)
    assert _voluntary_switches() - before < 40


@ranks(2, env={**EVENTS, "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
               "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "3"})  # fmt: skip
def test_with_the_autotuner(rank: int, size: int) -> None:
    for turn in range(200):
        handles = [hvd.allreduce_async(torch.tensor(n + turn), name=f"tuned.{n}", op=hvd.Sum) for n in range(5)]
        assert [hvd.synchronize(handle).item() for handle in handles] == [(n + turn) * size for n in range(5)]


@ranks(1, 2, 3, env=EVENTS, fresh=True)
def test_worlds_end_and_begin_again(rank: int, size: int) -> None:
    seconds = []
    for world in range(6):
        hvd.init()
        assert hvd.allreduce(torch.tensor(world), name="world", op=hvd.Sum).item() == world * size
        time.sleep(0.05 * ((rank + world) % 2))
        start_s = time.monotonic()
        hvd.shutdown()
        seconds.append(time.monotonic() - start_s)
    assert statistics.median(seconds) < 0.9  # the heartbeat is a second


@ranks(2, 3, env=EVENTS, hvd="horovod.tensorflow")
def test_tensorflow(rank: int, size: int, hvd: Any) -> None:
    @tf.function
    def sums(start: Any) -> list[Any]:
        return [hvd.allreduce(start + n, name=f"tf.{n}", op=hvd.Sum) for n in range(12)]

    for turn in range(20):
        found = [value.numpy() for value in sums(tf.constant(turn + rank))]
        assert found == [size * (size - 1) // 2 + (turn + n) * size for n in range(12)]
        if turn % 4 == rank:
            time.sleep(0.02)


def _stall(rank: int, size: int) -> None:
    hvd.allreduce(torch.ones(1), name="stalled")
    handle = hvd.allreduce_async(torch.ones(1), name="stalled") if rank == 0 else None
    time.sleep(4)
    if handle is None:
        handle = hvd.allreduce_async(torch.ones(1), name="stalled")
    hvd.synchronize(handle)


def test_the_stall_inspector_says_who_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    world = World(2, {**EVENTS, "HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}, ("torch",))
    try:
        world.run(__name__, "_stall", (), 60)
        assert "Missing ranks" in world._log(0).read_text()
    finally:
        world.end()


@ranks(2, 3, env=EVENTS, fresh=True)
def test_both_libraries_in_one_process(rank: int, size: int) -> None:
    """PyTorch's and TensorFlow's libraries are two worlds; what Horovod calls virtually, both have of the first one."""
    of_tensorflow = importlib.import_module("horovod.tensorflow")
    of_torch = importlib.import_module("horovod.torch")

    of_torch.init()
    of_tensorflow.init()
    for turn in range(20):
        assert of_torch.allreduce(torch.tensor(turn), name="torch", op=of_torch.Sum).item() == turn * size
        found = of_tensorflow.allreduce(tf.constant(turn + rank), name="tensorflow", op=of_tensorflow.Sum).numpy()
        assert found == turn * size + size * (size - 1) // 2
        if turn % 4 == rank:
            time.sleep(0.02)
    of_torch.barrier()
    of_torch.shutdown()
    for turn in range(5):
        assert of_tensorflow.allreduce(tf.constant(turn), name="alone", op=of_tensorflow.Sum).numpy() == turn * size
    of_tensorflow.shutdown()
