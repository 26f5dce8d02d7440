"""Stages as threads of one process, with queues as transport: for tests without communication."""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from paceline.native.communicator import StageFailed, StageLost

_LIMIT_S = 30.0


class _Office:
    """Queues and state shared by the communicators of one group of threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: dict[tuple[int, int, int], queue.SimpleQueue[bytes]] = defaultdict(queue.SimpleQueue)
        self.failure: tuple[int, str] | None = None
        self.lock = threading.Lock()

    def box(self, sender: int, receiver: int, tag: int) -> queue.SimpleQueue[bytes]:
        with self.lock:
            return self.boxes[sender, receiver, tag]


class QueueCommunicator:
    """Like paceline.native.communicator.Communicator: messages of one tag arrive in order, in posted memory."""

    def __init__(self, office: _Office, rank: int) -> None:
        self.rank, self.size = rank, office.size
        self._office = office
        self._numbers = itertools.count()
        # Waiting receives, oldest first, by peer and tag: their numbers, memory and sizes.
        self._posted: dict[tuple[int, int], deque[tuple[int, Any, int]]] = defaultdict(deque)
        self._where: dict[int, tuple[int, int]] = {}
        # Operations that have begun and whose end was not observed.
        self._flying: set[int] = set()

    def send(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        assert 0 <= peer < self.size and peer != self.rank
        sent = ctypes.string_at(data, size_bytes or 0) if isinstance(data, int) else bytes(data)
        self._office.box(self.rank, peer, tag).put(sent)
        number = next(self._numbers)
        self._flying.add(number)
        return number

    def receive(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        assert 0 <= peer < self.size and peer != self.rank
        number = next(self._numbers)
        self._flying.add(number)
        size = size_bytes if isinstance(data, int) else memoryview(data).nbytes
        assert size
        self._where[number] = peer, tag
        self._posted[peer, tag].append((number, data, size))
        return number

    def done(self, operation: int) -> bool:
        return self._look(operation, 0.0)

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        waited_s = 0.0
        while not self._look(operation, 0.01):
            waited_s += 0.01
            if waited_s > (limit_s or _LIMIT_S):
                raise StageLost(f"rank {self.rank} waited for {self._where[operation]}")

    def notify_failure(self, text: str) -> None:
        self._office.failure = self._office.failure or (self.rank, text)

    def close(self, limit_s: float | None = None) -> None:
        for operation in sorted(self._flying) if self._office.failure is None else ():
            self.wait(operation, limit_s)

    def _look(self, operation: int, limit_s: float) -> bool:
        assert operation in self._flying, "nobody asks twice for what has ended"
        if self._office.failure is not None:
            rank, text = self._office.failure
            raise StageFailed(f"Rank {rank} could not go on: {text}", rank, text)
        while operation in self._where:
            peer, tag = self._where[operation]
            try:
                came = self._office.box(peer, self.rank, tag).get(limit_s > 0, limit_s)
            except queue.Empty:
                return False
            number, data, size = self._posted[peer, tag].popleft()
            assert len(came) == size, f"rank {self.rank} expected {size} bytes of {peer}, {tag}; found {len(came)}"
            if isinstance(data, int):
                ctypes.memmove(data, came, size)
            else:
                memoryview(data).cast("B")[:] = came
            del self._where[number]
        self._flying.discard(operation)
        return True


def in_threads(size: int, body: Callable[[QueueCommunicator], Any]) -> list[Any]:
    """Return the results of `body(communicator)` on each of `size` stages. Raises the first failed stage's error."""
    office = _Office(size)
    answers: list[Any] = [None] * size
    errors: list[BaseException] = []

    def stage(rank: int) -> None:
        communicator = QueueCommunicator(office, rank)
        try:
            answers[rank] = body(communicator)
            communicator.close()
        except BaseException as error:
            errors.append(error)
            communicator.notify_failure(f"{error!r}")

    threads = [threading.Thread(target=stage, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _LIMIT_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
    return answers
