"""Receives from other stages, into memory that is posted ahead.

`replenish` posts it, and is called after a stage has sent the messages that others wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.stages.execution import headers
from paceline.stages.execution.activations import Form, Signature
from paceline.stages.execution.headers import Forecast, Known
from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.tensors import Tensors

# Number of expected messages whose memory is posted ahead.
_AHEAD = 2


@dataclass
class _Arrival:
    place: int
    header: bytearray
    header_receive: int
    foreseen: int | None
    # Memory for tensors of the expected signature, or, once the header is read, of the actual one; receives of large
    # tensors.
    hosts: list[Any] = field(default_factory=list)
    receives: list[int | None] = field(default_factory=list)
    signature: Signature | None = None


class Arrivals:
    """Activations from the previous stage, `peer`."""

    def __init__(self, post: Post, tensors: Tensors, peer: int, places: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._known: list[Known] = []
        self._forecast = Forecast(places)
        self._to_come: deque[int] = deque()
        self._posted: deque[_Arrival] = deque()

    def expect(self, places: Sequence[int]) -> None:
        """Note that activations of micro-batches at these places in their mini-batch will arrive."""
        self._to_come.extend(places)
        self.replenish()

    def progress(self) -> None:
        """Post memory for arrived headers of unexpected signatures, without waiting."""
        for arrival in self._posted:
            if arrival.signature is None:
                if arrival.foreseen is not None or not self._post.done(arrival.header_receive):
                    return
                self._read(arrival)

    def take(self) -> tuple[Signature, list[Any]]:
        """Wait for the oldest activations; return their signature and tensors, on the stage's device."""
        arrival = self._posted.popleft()
        if arrival.signature is None:
            self._post.wait([arrival.header_receive])
            signature = self._read(arrival)
        else:
            signature = arrival.signature
        self._post.wait(arrival.receives)
        return signature, [self._tensors.here(one) for one in arrival.hosts]

    def replenish(self) -> None:
        """Post memory for some expected messages."""
        while self._to_come and len(self._posted) < _AHEAD:
            place = self._to_come.popleft()
            foreseen = self._forecast.of(place)
            known = None if foreseen is None else self._known[foreseen]
            header = headers.empty(headers.room_of(known))
            receive = self._post.receive_bytes(self._peer, Tag.HEADER, header)
            arrival = _Arrival(place, header, receive, foreseen)
            if known is not None and known.room_bytes:
                arrival.hosts = self._empty(known.signature)
            elif known is not None:
                self._receive(arrival, known.signature, Tag.FORESEEN)
            self._posted.append(arrival)

    def _read(self, arrival: _Arrival) -> Signature:
        number, described_bytes = headers.numbers(arrival.header)
        if described_bytes:
            text = bytearray(described_bytes)
            self._post.wait([self._post.receive_bytes(self._peer, Tag.DESCRIPTION, text)])
            self._known.append(Known.of(Signature.decode(bytes(text)), self._tensors))
        known = self._known[number]
        arrival.signature = known.signature
        self._forecast.learn(arrival.place, number)
        if number != arrival.foreseen:
            # Wait for the expected messages as well: their memory must stay alive until then.
            self._post.wait(arrival.receives)
            self._receive(arrival, known.signature, Tag.OTHER)
        elif known.room_bytes:
            headers.unpack(arrival.header, known, self._tensors, arrival.hosts)
        return known.signature

    def _receive(self, arrival: _Arrival, signature: Signature, tag: Tag) -> None:
        arrival.hosts = self._empty(signature)
        arrival.receives = [self._post.receive(self._peer, tag, self._tensors.memory(one)) for one in arrival.hosts]

    def _empty(self, signature: Signature) -> list[Any]:
        return [self._tensors.empty(form) for form in signature.forms]


class GradientArrivals:
    """Gradients from the next stage, of the forms that were sent to it."""

    def __init__(self, post: Post, tensors: Tensors, peer: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._to_come: deque[tuple[Form, ...]] = deque()
        self._posted: deque[tuple[list[Any], list[int | None]]] = deque()

    def expect(self, signature: Signature) -> None:
        """Note that the gradients of activations of this signature will arrive."""
        self._to_come.append(signature.gradients)

    def take(self) -> list[Any]:
        """Wait for the oldest gradients; return them on the stage's device."""
        hosts, receives = self._posted.popleft()
        self._post.wait(receives)
        return [self._tensors.here(one) for one in hosts]

    def replenish(self) -> None:
        """Post memory for some expected gradients."""
        while self._to_come and len(self._posted) < _AHEAD:
            hosts = [self._tensors.empty(form) for form in self._to_come.popleft()]
            memories = [self._tensors.memory(one) for one in hosts]
            self._posted.append((hosts, [self._post.receive(self._peer, Tag.GRADIENT, one) for one in memories]))
