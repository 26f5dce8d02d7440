"""Messages between ranks, in addition to Horovod's collectives: contents, order, and refused requests."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch

import paceline.torch  # noqa: F401  hands the option on
from integration_tests.support.ranks import ranks
from paceline.errors import UsageError
from paceline.native.communicator import Communicator
from paceline.native.library import loaded

SIZES_BYTES = (0, 1, 3, 4097, 1_000_003)


def _communicator(process_set_id: int = 0) -> Any:
    return Communicator(loaded("torch"), process_set_id)


def _values(sender: int, number: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes that identify sender and message."""
    return ((np.arange(size_bytes) * 7 + sender * 101 + number * 13) % 256).astype(np.uint8)


@ranks(3, more=(2, 5))
def test_all_sizes_to_all_ranks_at_once(rank: int, size: int) -> None:
    communicator = _communicator()
    assert (communicator.rank, communicator.size) == (rank, size)
    got = {}
    operations = []
    for number, size_bytes in enumerate(SIZES_BYTES):
        for peer in set(range(size)) - {rank}:
            given = _values(rank, number, size_bytes)
            given.flags.writeable = False
            got[peer, number] = np.zeros(size_bytes, np.uint8)
            operations.append(communicator.receive(peer, number, got[peer, number].data))
            operations.append(communicator.send(peer, number, given.data))
    for operation in operations:
        communicator.wait(operation)
        assert communicator.done(operation)
    for (peer, number), found in got.items():
        np.testing.assert_array_equal(found, _values(peer, number, SIZES_BYTES[number]))
    communicator.close()


@ranks(2)
def test_messages_of_one_tag_come_in_order_whichever_end_is_first(rank: int, size: int) -> None:
    count, peer = 60, 1 - rank
    communicator = _communicator()
    for receives_late in (False, True):
        given = [_values(rank, number, 1 + 977 * number) for number in range(count)]
        got = [np.zeros(1 + 977 * number, np.uint8) for number in range(count)]
        if not receives_late:
            receives = [communicator.receive(peer, 5, one.data) for one in got]
            hvd.barrier()
        sends = [communicator.send(peer, 5, one.data) for one in given]
        if receives_late:
            hvd.barrier()
            receives = [communicator.receive(peer, 5, one.data) for one in got]
        for operation in reversed(receives + sends):
            communicator.wait(operation)
        for number, found in enumerate(got):
            np.testing.assert_array_equal(found, _values(peer, number, found.size))
    communicator.close()


@ranks(2)
def test_addresses_and_polling(rank: int, size: int) -> None:
    communicator = _communicator()
    memory = np.arange(10, dtype=np.float64) + rank
    if rank == 0:
        operation = communicator.send(1, 2**55, memory.ctypes.data, memory.nbytes)
    else:
        operation = communicator.receive(0, 2**55, memory.ctypes.data, memory.nbytes)
        assert not communicator.done(operation) or memory[0] == 0
    while not communicator.done(operation):
        time.sleep(0.001)
    np.testing.assert_array_equal(memory, np.arange(10))
    communicator.close()
    communicator.close()


@ranks(3, worlds=[pytest.param({"PACELINE_COLLECTIVE": one}, id=one) for one in ("horovod", "ring")])
def test_beside_collectives_in_the_background(rank: int, size: int) -> None:
    communicator = _communicator()
    left, right = (rank - 1) % size, (rank + 1) % size
    for step in range(20):
        reduced = [
            hvd.allreduce_async(torch.full((40_001,), float(rank + part)), op=hvd.Sum, name=f"communicator.{part}")
            for part in range(5)
        ]
        given, got = _values(rank, step, 300_007), np.zeros(300_007, np.uint8)
        operations = [communicator.receive(left, 1, got.data), communicator.send(right, 1, given.data)]
        for operation in operations:
            communicator.wait(operation)
        np.testing.assert_array_equal(got, _values(left, step, got.size))
        for part, handle in enumerate(reduced):
            total = size * (size - 1) / 2 + size * part
            assert hvd.synchronize(handle).eq(total).all(), (step, part)
    communicator.close()
    hvd.barrier()


@ranks(3, fresh=True)
def test_two_process_sets_at_once(rank: int, size: int) -> None:
    outer = hvd.ProcessSet([0, 2])
    hvd.shutdown()
    hvd.init(process_sets=[outer])
    everybody = _communicator()
    if rank == 1:
        with pytest.raises(UsageError, match="this rank is not one of it"):
            _communicator(outer.process_set_id)
        hvd.barrier()
        everybody.close()
        return
    two = _communicator(outer.process_set_id)
    assert (two.rank, two.size) == (rank // 2, 2)
    got, peer = [np.zeros(1001, np.uint8) for _ in range(2)], 2 - rank
    operations = [everybody.receive(peer, 3, got[0].data), two.receive(peer // 2, 3, got[1].data)]
    two.wait(two.send(peer // 2, 3, _values(rank, 1, 1001).data))
    everybody.wait(everybody.send(peer, 3, _values(rank, 0, 1001).data))
    two.wait(operations[1])
    everybody.wait(operations[0])
    for number, found in enumerate(got):
        np.testing.assert_array_equal(found, _values(peer, number, 1001))
    two.close()
    hvd.barrier()
    everybody.close()


@ranks(2)
def test_closing_waits_for_all_and_another_communicator_begins_empty(rank: int, size: int) -> None:
    for turn in range(3):
        communicator = _communicator()
        got = np.zeros(2_000_001, np.uint8)
        communicator.receive(1 - rank, 0, got.data)
        communicator.send(1 - rank, 0, _values(rank, turn, got.size).data)
        communicator.close()
        np.testing.assert_array_equal(got, _values(1 - rank, turn, got.size))


@ranks(2)
def test_memory_is_kept_as_long_as_a_message_is_in_flight(rank: int, size: int) -> None:
    communicator = _communicator()
    if rank == 0:
        operation = communicator.send(1, 0, _values(0, 1, 5_000_001).data)  # the array itself is freed
        _ = [np.ones(5_000_001, np.uint8) for _ in range(4)]
        hvd.barrier()
        communicator.wait(operation)
    else:
        hvd.barrier()
        got = np.zeros(5_000_001, np.uint8)
        communicator.wait(communicator.receive(0, 0, got.data))
        np.testing.assert_array_equal(got, _values(0, 1, got.size))
    communicator.close()


@ranks(2)
def test_a_thread_of_its_own(rank: int, size: int) -> None:
    communicator, got = _communicator(), np.zeros(3_000_001, np.uint8)

    def talk() -> None:
        operation = communicator.receive(1 - rank, 9, got.data)
        communicator.wait(communicator.send(1 - rank, 9, _values(rank, 2, got.size).data))
        communicator.wait(operation)

    thread = threading.Thread(target=talk)
    thread.start()
    assert hvd.allreduce(torch.tensor(rank), op=hvd.Sum, name="communicator.thread").item() == 1
    thread.join()
    np.testing.assert_array_equal(got, _values(1 - rank, 2, got.size))
    communicator.close()


@ranks(2, fresh=True)
def test_a_forked_process_leaves_the_communicator_to_its_parent(rank: int, size: int) -> None:
    communicator, got = _communicator(), np.zeros(70_001, np.uint8)
    operation = communicator.receive(1 - rank, 0, got.data)
    child = os.fork()
    if child == 0:
        del communicator
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    communicator.wait(communicator.send(1 - rank, 0, _values(rank, 3, got.size).data))
    communicator.wait(operation)
    np.testing.assert_array_equal(got, _values(1 - rank, 3, got.size))
    communicator.close()


@ranks(2)
def test_bad_input_is_refused_and_nothing_is_lost(rank: int, size: int) -> None:
    communicator, room = _communicator(), np.zeros((4, 6), np.uint8)
    for peer in (rank, -1, 2):
        with pytest.raises(UsageError, match=f"rank {rank} of 2: found peer {peer}"):
            communicator.send(peer, 0, room.data)
    for tag in (-1, 2**55 + 1):
        with pytest.raises(UsageError, match="found tag"):
            communicator.receive(1 - rank, tag, room.data)
    with pytest.raises(UsageError, match="read-only memory"):
        communicator.receive(1 - rank, 0, memoryview(b"abc"))
    with pytest.raises(UsageError, match="memory with gaps"):
        communicator.send(1 - rank, 0, room[:, ::2].data)
    with pytest.raises(UsageError, match="24 bytes: found size_bytes=23"):
        communicator.send(1 - rank, 0, room.data, 23)
    with pytest.raises(UsageError, match="found size_bytes=None"):
        communicator.send(1 - rank, 0, room.ctypes.data)
    with pytest.raises(UsageError, match="there is no such set"):
        _communicator(77)
    got = np.zeros(5, np.uint8)
    operation = communicator.receive(1 - rank, 0, got.data)
    communicator.send(1 - rank, 0, _values(rank, 0, 5).data)
    communicator.wait(operation)
    np.testing.assert_array_equal(got, _values(1 - rank, 0, 5))
    communicator.close()
    with pytest.raises(UsageError, match="The communicator is closed"):
        communicator.send(1 - rank, 0, room.data)


@ranks(1, fresh=True)
def test_alone_and_before_init(rank: int, size: int) -> None:
    hvd.shutdown()
    with pytest.raises(UsageError, match="Horovod is not initialised"):
        Communicator(loaded("torch"))
    hvd.init()
    communicator = _communicator()
    with pytest.raises(UsageError, match="found peer 0"):
        communicator.send(0, 0, b"to myself")
    communicator.close()
    hvd.shutdown()
    with pytest.raises(UsageError, match="Horovod is not initialised"):
        Communicator(loaded("torch"))
