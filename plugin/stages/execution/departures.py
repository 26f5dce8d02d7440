"""Sends of activations to the next stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.stages.execution import headers
from paceline.stages.execution.activations import Signature
from paceline.stages.execution.headers import Forecast, Known
from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.tensors import Tensors


class Departures:
    """Send activations to `peer`; mini-batches have `places` micro-batches."""

    def __init__(self, post: Post, tensors: Tensors, peer: int, places: int) -> None:
        self._post, self._tensors, self._peer = post, tensors, peer
        self._numbers: dict[Signature, int] = {}
        self._known: list[Known] = []
        self._forecast = Forecast(places)

    def send(self, place: int, signature: Signature, hosts: Sequence[Any]) -> None:
        """Begin to send host tensors, the activations of the micro-batch at this place in its mini-batch."""
        memories = [self._tensors.memory(host) for host in hosts]
        number = self._numbers.get(signature)
        described = b""
        if number is None:
            number, described = self._add(signature), signature.encode()
        expected = self._forecast.of(place)
        foreseen = None if expected is None else self._known[expected]
        room_bytes = headers.room_of(foreseen)
        brings = memories if expected == number and room_bytes else []
        message = headers.packed(number, len(described), room_bytes, brings)
        self._post.send_bytes(self._peer, Tag.HEADER, message)
        self._post.send_bytes(self._peer, Tag.DESCRIPTION, described)
        if foreseen is not None and expected != number and not room_bytes:
            # The other end has already posted receives for these, which cannot be cancelled.
            for size_bytes in foreseen.sizes_bytes:
                self._post.send_bytes(self._peer, Tag.FORESEEN, bytes(size_bytes))
        if not brings:
            tag = Tag.FORESEEN if expected == number else Tag.OTHER
            for memory in memories:
                self._post.send(self._peer, tag, memory)
        self._forecast.learn(place, number)

    def _add(self, signature: Signature) -> int:
        self._known.append(Known.of(signature, self._tensors))
        self._numbers[signature] = len(self._numbers)
        return self._numbers[signature]
