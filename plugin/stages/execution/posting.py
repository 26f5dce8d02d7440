"""Messages between two stages; memory stays alive until it was sent.

Messages of one tag between two ranks arrive in the order in which they were sent; both ends post them in that order.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from paceline.stages.execution.tensors import Memory

# Number of messages or bytes held before the memory of sent messages is released, because each check takes time.
_HELD_MESSAGES, _HELD_BYTES = 16, 1 << 20


class Tag(enum.IntEnum):
    """Kind of a message; each is a separate stream between two ranks."""

    HEADER = 0  # with small tensors of the predicted signature
    DESCRIPTION = 1
    FORESEEN = 2  # large tensors of the predicted signature
    OTHER = 3  # tensors of another signature
    GRADIENT = 4
    LOSS = 5
    NORM = 6
    TERMS = 7
    STATE = 8
    PARTING = 9
    TIE = 10


class Communicator(Protocol):
    """Point-to-point messages between the ranks of a process set: paceline.native.communicator."""

    rank: int
    size: int

    def send(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to send memory, or `size_bytes` at an address; return the operation."""
        ...

    def receive(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to receive as many bytes as the peer sends."""
        ...

    def done(self, operation: int) -> bool:
        """Return True if the operation has ended; do not ask again after that."""
        ...

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        """Wait until the operation has ended."""
        ...

    def notify_failure(self, text: str) -> None:
        """End all ranks with StageFailed."""
        ...

    def close(self, limit_s: float | None = None) -> None:
        """Wait for all that is in flight, and close."""
        ...


class Post:
    """Sends and receives of memory and bytes between stages over a communicator; `first_tag` separates pipelines."""

    def __init__(self, communicator: Communicator, first_tag: int = 0) -> None:
        self.communicator = communicator
        self._first = first_tag
        self._sent: deque[tuple[int, int, object]] = deque()
        self._sent_bytes = 0

    def send(self, peer: int, tag: Tag, memory: Memory) -> None:
        """Begin to send memory, unless it is empty; it must not change until it was sent."""
        if memory.size_bytes:
            operation = self.communicator.send(peer, self._first + tag, memory.address, memory.size_bytes)
            self._hold(operation, memory.size_bytes, memory)

    def send_bytes(self, peer: int, tag: Tag, data: bytes | bytearray) -> None:
        """Begin to send bytes, which must not change any more; empty ones make no message."""
        if data:
            self._hold(self.communicator.send(peer, self._first + tag, data), len(data), data)

    def receive(self, peer: int, tag: Tag, memory: Memory) -> int | None:
        """Begin to receive into memory. Returns None if it is empty, so that there is no message."""
        if not memory.size_bytes:
            return None
        return self.communicator.receive(peer, self._first + tag, memory.address, memory.size_bytes)

    def receive_bytes(self, peer: int, tag: Tag, memory: bytearray) -> int:
        """Begin to receive into `memory`."""
        return self.communicator.receive(peer, self._first + tag, memory)

    def wait(self, operations: Sequence[int | None]) -> None:
        """Wait for all operations. Raises what the communicator raises for a lost rank or a failure notice."""
        for operation in operations:
            if operation is not None:
                self.communicator.wait(operation)

    def done(self, operation: int) -> bool:
        """Return True if a receive has ended."""
        return self.communicator.done(operation)

    def sweep(self) -> None:
        """Release the memory of sent messages, once enough is held."""
        if self._sent_bytes < _HELD_BYTES and len(self._sent) < _HELD_MESSAGES:
            return
        while self._sent and self.communicator.done(self._sent[0][0]):
            self._give_back()

    def finish(self) -> None:
        """Wait until all messages were sent."""
        while self._sent:
            self.communicator.wait(self._sent[0][0])
            self._give_back()

    def _hold(self, operation: int, size_bytes: int, memory: object) -> None:
        self._sent.append((operation, size_bytes, memory))
        self._sent_bytes += size_bytes

    def _give_back(self) -> None:
        self._sent_bytes -= self._sent.popleft()[1]
