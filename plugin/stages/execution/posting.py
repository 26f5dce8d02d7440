"""Messages between two stages: what is sent stays alive until it has gone, what will come is posted ahead.

Messages of one tag between two ranks arrive in the order in which they were sent; both ends post them in that order.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paceline.stages.execution.activations import Form, Signature
from paceline.stages.execution.tensors import Memory, Tensors

# How many messages that are sure to come have their memory ready before they are asked for.
AHEAD = 2
# The number of a signature, and the size of its description in bytes; 0 if it was described before.
_HEADER = struct.Struct("<qq")


class Tag(enum.IntEnum):
    """What a message is; each is a stream of its own between two ranks."""

    HEADER = 0
    DESCRIPTION = 1
    FORESEEN = 2  # tensors of the signature that both ends expected
    OTHER = 3  # of another
    GRADIENT = 4
    LOSS = 5
    NORM = 6
    TERMS = 7
    STATE = 8
    PARTING = 9


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
        self._sent: deque[tuple[int, object]] = deque()

    def send(self, peer: int, tag: Tag, memory: Memory) -> None:
        """Begin to send memory, if it has any bytes; nobody may change it until it has gone."""
        if memory.size_bytes:
            operation = self.mail.send(peer, self._first + tag, memory.address, memory.size_bytes)
            self._sent.append((operation, memory))

    def send_bytes(self, peer: int, tag: Tag, data: bytes | bytearray) -> None:
        """Begin to send some bytes; of none there is no message."""
        if data:
            held = bytearray(data)
            self._sent.append((self.mail.send(peer, self._first + tag, memoryview(held)), held))

    def receive(self, peer: int, tag: Tag, memory: Memory) -> int | None:
        """Begin to receive into memory. None: it has no bytes, so there is no message."""
        if not memory.size_bytes:
            return None
        return self.mail.receive(peer, self._first + tag, memory.address, memory.size_bytes)

    def receive_bytes(self, peer: int, tag: Tag, memory: bytearray) -> int:
        """Begin to receive into `memory`."""
        return self.mail.receive(peer, self._first + tag, memoryview(memory))

    def wait(self, operations: Sequence[int | None]) -> None:
        """Wait for all of them. Raises what the mail does if a rank is lost, or tells of its failure."""
        for operation in operations:
            if operation is not None:
                self.mail.wait(operation)

    def done(self, operation: int) -> bool:
        """Whether a receive is over."""
        return self.mail.done(operation)

    def sweep(self) -> None:
        """Give back the memory of what has gone."""
        while self._sent and self.mail.done(self._sent[0][0]):
            self._sent.popleft()

    def finish(self) -> None:
        """Wait until all has gone."""
        while self._sent:
            self.mail.wait(self._sent[0][0])
            self._sent.popleft()


class Forecast:
    """Which signature both ends expect of a micro-batch, by its place in the mini-batch: that of the two before it, if
    these were the same. Both ends learn the same, so that neither has to tell the other.
    """

    def __init__(self, places: int) -> None:
        self._last: list[int | None] = [None] * places
        self._twice = [False] * places

    def of(self, place: int) -> int | None:
        """A signature's number, or None for no expectation."""
        return self._last[place] if self._twice[place] else None

    def learn(self, place: int, number: int) -> None:
        """What it was."""
        self._twice[place] = self._last[place] == number
        self._last[place] = number


class Departures:
    """Activations on their way to the stage after."""

    def __init__(self, post: Post, tensors: Tensors, peer: int, places: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._numbers: dict[Signature, int] = {}
        self._forecast = Forecast(places)

    def send(self, place: int, signature: Signature, hosts: Sequence[Any]) -> None:
        """Begin to send host tensors, the activations of the micro-batch at this place in its mini-batch."""
        described = b"" if signature in self._numbers else signature.encode()
        number = self._numbers.setdefault(signature, len(self._numbers))
        self._post.send_bytes(self._peer, Tag.HEADER, _HEADER.pack(number, len(described)))
        self._post.send_bytes(self._peer, Tag.DESCRIPTION, described)
        expected = self._forecast.of(place)
        if expected not in (None, number):
            # The other end has posted memory for these already, and cannot take that back.
            for form in list(self._numbers)[expected].forms:
                expected_bytes = self._tensors.memory(self._tensors.empty(form)).size_bytes
                self._post.send_bytes(self._peer, Tag.FORESEEN, bytes(expected_bytes))
        tag = Tag.FORESEEN if expected == number else Tag.OTHER
        for host in hosts:
            self._post.send(self._peer, tag, self._tensors.memory(host))
        self._forecast.learn(place, number)


@dataclass
class _Arrival:
    place: int
    header: bytearray
    header_receive: int
    foreseen: int | None
    # What a foreseen signature's tensors are received into, and after the header what the true one's are.
    hosts: list[Any] = field(default_factory=list)
    receives: list[int | None] = field(default_factory=list)
    signature: Signature | None = None


class Arrivals:
    """Activations that come from the stage before."""

    def __init__(self, post: Post, tensors: Tensors, peer: int, places: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._signatures: list[Signature] = []
        self._forecast = Forecast(places)
        self._to_come: deque[int] = deque()
        self._posted: deque[_Arrival] = deque()

    def expect(self, places: Sequence[int]) -> None:
        """Messages of micro-batches at these places in their mini-batch will come; they are posted some at a time."""
        self._to_come.extend(places)
        self._post_ahead()

    def progress(self) -> None:
        """Without a wait: post memory for what has come and was not foreseen."""
        for arrival in self._posted:
            if arrival.signature is None:
                if not self._post.done(arrival.header_receive):
                    return
                self._read(arrival)

    def take(self) -> tuple[Signature, list[Any]]:
        """Wait for the oldest of them: its signature and tensors, on the stage's device."""
        arrival = self._posted.popleft()
        if arrival.signature is None:
            self._post.wait([arrival.header_receive])
            signature = self._read(arrival)
        else:
            signature = arrival.signature
        self._post_ahead()
        self._post.wait(arrival.receives)
        return signature, [self._tensors.here(one) for one in arrival.hosts]

    def _post_ahead(self) -> None:
        while self._to_come and len(self._posted) < AHEAD:
            place = self._to_come.popleft()
            header = bytearray(_HEADER.size)
            receive = self._post.receive_bytes(self._peer, Tag.HEADER, header)
            arrival = _Arrival(place, header, receive, self._forecast.of(place))
            if arrival.foreseen is not None:
                self._receive(arrival, self._signatures[arrival.foreseen], Tag.FORESEEN)
            self._posted.append(arrival)

    def _read(self, arrival: _Arrival) -> Signature:
        number, described_bytes = _HEADER.unpack(arrival.header)
        if described_bytes:
            text = bytearray(described_bytes)
            self._post.wait([self._post.receive_bytes(self._peer, Tag.DESCRIPTION, text)])
            self._signatures.append(Signature.decode(bytes(text)))
        signature = arrival.signature = self._signatures[number]
        self._forecast.learn(arrival.place, number)
        if number != arrival.foreseen:
            # What was foreseen is waited for as well: its memory must not be given back before.
            self._post.wait(arrival.receives)
            self._receive(arrival, signature, Tag.OTHER)
        return signature

    def _receive(self, arrival: _Arrival, signature: Signature, tag: Tag) -> None:
        arrival.hosts = [self._tensors.empty(form) for form in signature.forms]
        arrival.receives = [self._post.receive(self._peer, tag, self._tensors.memory(one)) for one in arrival.hosts]


class GradientArrivals:
    """Gradients that come from the stage after, of the forms that were sent to it."""

    def __init__(self, post: Post, tensors: Tensors, peer: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._to_come: deque[tuple[Form, ...]] = deque()
        self._posted: deque[tuple[list[Any], list[int | None]]] = deque()

    def expect(self, signature: Signature) -> None:
        """The gradients of activations of this signature will come."""
        self._to_come.append(signature.gradients)
        self._post_ahead()

    def take(self) -> list[Any]:
        """Wait for the oldest of them; on the stage's device."""
        hosts, receives = self._posted.popleft()
        self._post_ahead()
        self._post.wait(receives)
        return [self._tensors.here(one) for one in hosts]

    def _post_ahead(self) -> None:
        while self._to_come and len(self._posted) < AHEAD:
            hosts = [self._tensors.empty(form) for form in self._to_come.popleft()]
            memories = [self._tensors.memory(one) for one in hosts]
            self._posted.append((hosts, [self._post.receive(self._peer, Tag.GRADIENT, one) for one in memories]))
