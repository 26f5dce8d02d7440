"""Ranks that wait for messages of another rank end with an error naming it if it dies, stops, fails or leaves."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integration_tests.kills import kill_in
from integration_tests.support.deaths import assert_named
from integration_tests.support.more import more
from integration_tests.support.ranks import World, ranks, run_ranks
from paceline.native.communicator import NOTICE_BYTES, Communicator, StageFailed, StageLost
from paceline.native.library import loaded

SIZE = 3
LIMIT_S = 4  # HOROVOD_GLOO_TIMEOUT_SECONDS, where it is waited for
SOON_S = 10.0  # Gloo's own limit is 30 s
TIMEOUT_S = 60.0


def _communicator() -> Any:
    import horovod.torch as hvd

    hvd.init()
    return Communicator(loaded("torch"))


def _circle(rank: int, size: int, size_bytes: int, folder: str) -> tuple[float, str]:
    """Each rank waits for the one before it nearly all the time."""
    communicator = _communicator()
    given, got = np.zeros(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)
    step = 0
    try:
        while True:
            receive = communicator.receive((rank - 1) % size, 1, got.data)
            send = communicator.send((rank + 1) % size, 1, given.data)
            communicator.wait(receive)
            communicator.wait(send)
            step += 1
            if step == 3:
                (Path(folder) / str(rank)).touch()
    except StageLost as error:
        heard_s = time.monotonic()
        with pytest.raises(StageLost):
            communicator.send((rank + 1) % size, 1, given.data)
        with pytest.raises(StageLost):
            communicator.done(1)
        communicator.close()
        return heard_s, str(error)


@pytest.mark.parametrize(("victim", "size_bytes"), [(0, 11), (1, 4_000_001), (2, 0)])
def test_survivors_name_the_dead_rank(victim: int, size_bytes: int) -> None:
    heard = kill_in(_circle, (size_bytes,), victim, moment_s=0.2, size=SIZE)
    assert_named(heard, victim, SIZE - 1, SOON_S)


def _stop(rank: int, size: int, victim: int, limit_s: float | None) -> tuple[str, tuple[int, ...]]:
    """The victim stops; the next rank waits for it, and the rank after that for the next rank."""
    communicator = _communicator()
    if rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    got = np.zeros(77, np.uint8)
    with pytest.raises(StageLost) as raised:
        communicator.wait(communicator.receive((rank - 1) % size, 4, got.data), limit_s)
    return str(raised.value), raised.value.ranks


@pytest.mark.parametrize(("victim", "limit_s"), [(0, LIMIT_S / 2), more(1, LIMIT_S / 2), more(1, None)])
def test_a_rank_that_stops_is_named_on_all_after_the_limit(victim: int, limit_s: float | None) -> None:
    world = World(SIZE, {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(LIMIT_S)}, ("torch",))
    try:
        world.send(_stop.__module__, _stop.__qualname__, (victim, limit_s))
        answers = world.answers(TIMEOUT_S, grace_s=TIMEOUT_S, without=[victim])
        assert len(answers) == SIZE - 1, world.report(answers)
        world.resume()
        answers |= world.answers(TIMEOUT_S, without=[*answers])
        for rank, (kind, heard) in answers.items():
            assert kind == "ok", heard
            text, lost = heard
            before = (rank - 1) % SIZE
            assert text.startswith(f"Rank {rank}, waiting for rank {before} to send 77 bytes (tag 4): "), text
            # The stopped rank also gets the error, once it continues.
            assert re.search(rf"Rank {victim} \(process \d+ on host [^)]+\) does not answer", text), text
            assert lost == (victim,)
    finally:
        world.end()


@ranks(3, fresh=True)
def test_a_message_that_nobody_sends_blames_no_rank(rank: int, size: int) -> None:
    communicator = _communicator()
    with pytest.raises(StageLost, match=r"within 1 s, and no rank is known to have died or stopped") as raised:
        communicator.wait(communicator.receive((rank - 1) % size, 4, bytearray(7)), 1.0)
    assert raised.value.ranks == ()


def _meet(communicator: Any, rank: int, size: int, fails: int) -> None:
    """Return on rank `fails` once all ranks are here; no other rank waits, so that the failure interrupts none."""
    if rank != fails:
        communicator.send(fails, 9, b"here")
        return
    for other in range(size):
        if other != fails:
            communicator.wait(communicator.receive(other, 9, bytearray(4)))


def _fails(communicator: Any, rank: int) -> None:
    try:
        raise ValueError(f"layer 7 of rank {rank} found 3 columns")
    except ValueError:
        import traceback

        communicator.notify_failure(traceback.format_exc())


def _waits(communicator: Any, rank: int, size: int) -> None:
    communicator.wait(communicator.receive((rank - 1) % size, 2, bytearray(10)))


def _computes(communicator: Any, rank: int, size: int) -> None:
    time.sleep(1.0)
    communicator.send((rank + 1) % size, 2, b"late")


def _reduces(communicator: Any, rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    with pytest.raises(hvd.HorovodInternalError, match=r"(?s)its stage failed:.*found 3 columns"):
        hvd.allreduce(torch.ones(3), name="communicator.never")
    communicator.wait(communicator.receive((rank - 1) % size, 2, bytearray(10)))


@ranks(3, fresh=True)
def test_a_failure_notice_ends_all_with_its_text(rank: int, size: int) -> None:
    import horovod.torch as hvd

    others: list[Callable[[Any, int, int], None]] = [_waits, _computes, _reduces]
    for fails in range(size):  # one world each
        communicator = _communicator()
        _meet(communicator, rank, size, fails)
        if rank == fails:
            time.sleep(0.3)
            _fails(communicator, rank)
        with pytest.raises(StageFailed) as raised:
            (_waits if rank == fails else others[rank])(communicator, rank, size)
        assert raised.value.rank == fails
        assert raised.value.text.startswith("Traceback (most recent call last):")
        assert f"ValueError: layer 7 of rank {fails} found 3 columns" in raised.value.text
        communicator.notify_failure("too late")
        with pytest.raises(StageFailed, match=f"of rank {fails} found 3 columns"):
            communicator.done(1)
        communicator.close()
        hvd.shutdown()


@ranks(2, fresh=True)
def test_the_end_of_a_long_failure_notice_is_received(rank: int, size: int) -> None:
    communicator = _communicator()
    _meet(communicator, rank, size, fails=1)
    if rank == 1:
        communicator.notify_failure("begin" + "é" * NOTICE_BYTES + "end")
    with pytest.raises(StageFailed) as raised:
        _waits(communicator, rank, size)
    assert raised.value.text.strip("é") == "end" and len(raised.value.text) > NOTICE_BYTES // 2 - 10


@ranks(2, fresh=True)
def test_a_communicator_opened_after_a_failure_notice_reports_it(rank: int, size: int) -> None:
    import paceline.torch as hvd

    hvd.init()
    if rank == 1:
        _communicator().notify_failure("no memory for layer 7")
        return
    with pytest.raises(StageFailed) as raised:
        while True:  # until the failure notice has arrived
            _communicator().close()
    assert (raised.value.rank, raised.value.text) == (1, "no memory for layer 7")


@pytest.mark.parametrize("given_bytes", [60, 100, 0])
def test_messages_of_other_lengths_than_expected(given_bytes: int) -> None:
    for text in run_ranks(_other_length, 3, given_bytes, fresh=True):
        assert f"Rank 1, waiting for rank 0 to send 80 bytes (tag 6): it sends {given_bytes} bytes where 80" in text


def _other_length(rank: int, size: int, given_bytes: int) -> str:
    communicator = _communicator()
    if rank == 2:  # its own must be there before the fault
        for other in (0, 1):
            communicator.send(other, 4, bytes(1))
    else:
        communicator.wait(communicator.receive(2, 4, bytearray(1)))
    with pytest.raises(StageLost) as raised:
        if rank == 0:
            communicator.send(1, 6, bytes(given_bytes))
        communicator.wait(communicator.receive((rank - 1) % size, 6, bytearray(80)))
    return str(raised.value)


@ranks(3, fresh=True)
def test_a_communicator_dropped_with_messages_in_flight(rank: int, size: int) -> None:
    import paceline.torch as hvd

    communicator = _communicator()
    hvd.barrier()
    if rank == 2:
        communicator.receive(1, 3, bytearray(20))
        for other in (0, 1):  # otherwise its end may arrive while they are at the barrier
            communicator.wait(communicator.receive(other, 4, bytearray(1)))
        del communicator
        gc.collect()
        return
    communicator.send(2, 4, bytes(1))
    with pytest.raises(
        StageLost, match=r"Rank 2, closing its communicator: it is still waiting for rank 1 to send 20 bytes"
    ):
        communicator.wait(communicator.receive(1 - rank, 3, bytearray(20)))


@ranks(2, fresh=True)
def test_closing_in_vain_is_limited(rank: int, size: int) -> None:
    communicator = _communicator()
    communicator.receive(1 - rank, 3, bytearray(20))
    with pytest.raises(StageLost, match=r"to send 20 bytes \(tag 3\)"):
        communicator.close(limit_s=1.0)


def _end(rank: int, size: int, sets: bool) -> None:
    """A rank ends Horovod while the others wait; open operations stay ended in the next world."""
    import horovod.torch as hvd

    for turn in range(3):
        hvd.init(process_sets=[hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])] if sets else None)
        communicator, idle = _communicator(), _communicator()
        got = np.zeros(50, np.uint8)
        receive = communicator.receive((rank - 1) % size, 5, got.data)
        hvd.barrier()
        if rank == turn:
            hvd.shutdown()
        with pytest.raises(StageLost, match=r"Horovod was shut down, by this rank or by one that came to its end"):
            communicator.wait(receive)
        hvd.shutdown()
        hvd.init()
        with pytest.raises(StageLost, match=r"Horovod (was shut down|began anew)"):
            communicator.send((rank + 1) % size, 5, got.data)
        with pytest.raises(StageLost, match=r"Horovod was initialised again since this communicator was opened"):
            idle.send((rank + 1) % size, 5, got.data)
        again = _communicator()
        operation = again.receive((rank - 1) % size, 5, got.data)
        again.wait(again.send((rank + 1) % size, 5, np.full(50, rank + turn, np.uint8).data))
        again.wait(operation)
        assert (got == (rank - 1) % size + turn).all()
        again.close()
        communicator.close()
        hvd.barrier()
        hvd.shutdown()
        idle.close()


@pytest.mark.parametrize("sets", [False, True])
def test_shutdown_and_another_world_while_a_communicator_is_open(sets: bool) -> None:
    run_ranks(_end, SIZE, sets, fresh=True)


@ranks(2, fresh=True)
def test_a_new_world_while_messages_are_in_flight_and_nobody_looks(rank: int, size: int) -> None:
    import horovod.torch as hvd

    communicators = []
    for turn in range(3):
        communicator, got = _communicator(), np.zeros(1_000_001, np.uint8)
        communicators.append(
            (communicator, communicator.receive(1 - rank, 1, got.data), communicator.receive(1 - rank, 2, bytearray(9)))
        )
        communicator.send(1 - rank, 1, np.full(1_000_001, turn, np.uint8).data)
        hvd.barrier()
        hvd.shutdown()
    hvd.init()
    for communicator, first, second in communicators:
        for operation in (first, second):
            with pytest.raises(StageLost):
                communicator.wait(operation)
    hvd.barrier()
    hvd.shutdown()
