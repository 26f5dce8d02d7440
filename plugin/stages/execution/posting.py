"""Messages between two stages: what is sent stays alive until it has gone.

Messages of one tag between two ranks arrive in the order in which they were sent; both ends post them in that order.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from paceline.stages.execution.tensors import Memory

# What has gone is given back when so many messages, or so many bytes, are held: to ask for it takes time, too.
_HELD_MESSAGES, _HELD_BYTES = 16, 1 << 20


class Tag(enum.IntEnum):
    """What a message is; each is a stream of its own between two ranks."""

    HEADER = 0  # with small tensors of the signature that both ends expected
    DESCRIPTION = 1
    FORESEEN = 2  # large ones of it
    OTHER = 3  # of another
    GRADIENT = 4
    LOSS = 5
    NORM = 6
    TERMS = 7
    STATE = 8
    PARTING = 9
    TIE = 10


class Mail(Protocol):
    """Point-to-point messages between the ranks of a process set: paceline.native.mail."""

    rank: int
    size: int

    def send(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to send memory, or so many bytes at an address; the operation."""
        ...

    def receive(self, peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
        """Begin to receive as many bytes as the peer sends."""
        ...

    def done(self, operation: int) -> bool:
        """Whether it has ended; who heard that asks no more."""
        ...

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        """Wait until it has ended."""
        ...

    def alarm(self, text: str) -> None:
        """End all ranks with StageFailed."""
        ...

    def close(self, limit_s: float | None = None) -> None:
        """Wait for all that is in flight, and end."""
        ...


class Post:
    """Sends and receives memory and bytes between stages, by a mail; `first_tag` keeps pipelines apart."""

    def __init__(self, mail: Mail, first_tag: int = 0) -> None:
        self.mail = mail
        self._first = first_tag
        self._sent: deque[tuple[int, int, object]] = deque()
        self._sent_bytes = 0

    def send(self, peer: int, tag: Tag, memory: Memory) -> None:
        """Begin to send memory, if it has any bytes; nobody may change it until it has gone."""
        if memory.size_bytes:
            operation = self.mail.send(peer, self._first + tag, memory.address, memory.size_bytes)
            self._hold(operation, memory.size_bytes, memory)

    def send_bytes(self, peer: int, tag: Tag, data: bytes | bytearray) -> None:
        """Begin to send some bytes, which nobody changes any more; of none there is no message."""
        if data:
            self._hold(self.mail.send(peer, self._first + tag, data), len(data), data)

    def receive(self, peer: int, tag: Tag, memory: Memory) -> int | None:
        """Begin to receive into memory. None: it has no bytes, so there is no message."""
        if not memory.size_bytes:
            return None
        return self.mail.receive(peer, self._first + tag, memory.address, memory.size_bytes)

    def receive_bytes(self, peer: int, tag: Tag, memory: bytearray) -> int:
        """Begin to receive into `memory`."""
        return self.mail.receive(peer, self._first + tag, memory)

    def wait(self, operations: Sequence[int | None]) -> None:
        """Wait for all of them. Raises what the mail does if a rank is lost, or tells of its failure."""
        for operation in operations:
            if operation is not None:
                self.mail.wait(operation)

    def done(self, operation: int) -> bool:
        """Whether a receive is over."""
        return self.mail.done(operation)

    def sweep(self) -> None:
        """Give back the memory of what has gone, once there is some."""
        if self._sent_bytes < _HELD_BYTES and len(self._sent) < _HELD_MESSAGES:
            return
        while self._sent and self.mail.done(self._sent[0][0]):
            self._give_back()

    def finish(self) -> None:
        """Wait until all has gone."""
        while self._sent:
            self.mail.wait(self._sent[0][0])
            self._give_back()

    def _hold(self, operation: int, size_bytes: int, memory: object) -> None:
        self._sent.append((operation, size_bytes, memory))
        self._sent_bytes += size_bytes

    def _give_back(self) -> None:
        self._sent_bytes -= self._sent.popleft()[1]
