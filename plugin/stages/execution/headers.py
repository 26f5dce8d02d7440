"""Header of activations, which gives the number of their signature.

Both ends predict the signature of a micro-batch. Small tensors of the predicted signature are sent in the header's
message, because a copy takes less time than another message. If another signature is sent, that room is unused.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.stages.execution.activations import Signature
from paceline.stages.execution.tensors import Memory, Tensors

# Limit for all tensors of a signature together to be sent with the header.
_SMALL_BYTES = 1 << 16
# The number of a signature, and the size of its description in bytes; 0 if it was described before.
_NUMBERS = struct.Struct("<qq")


@dataclass(frozen=True)
class Known:
    """A signature that both ends know by number.

    `sizes_bytes`: sizes of its tensors. `room_bytes`: bytes sent with the header: all tensors, or 0.
    """

    signature: Signature
    sizes_bytes: tuple[int, ...]
    room_bytes: int

    @staticmethod
    def of(signature: Signature, tensors: Tensors) -> Known:
        """Return the entry of a signature, for tensors of this framework, which both ends use."""
        sizes = tuple(tensors.memory(tensors.empty(form)).size_bytes for form in signature.forms)
        total = sum(sizes)
        return Known(signature, sizes, total if total <= _SMALL_BYTES else 0)


def room_of(foreseen: Known | None) -> int:
    """Return the bytes after the header in its message."""
    return 0 if foreseen is None else foreseen.room_bytes


def packed(number: int, described_bytes: int, room_bytes: int, memories: Sequence[Memory]) -> bytearray:
    """Return a header's message with the contents of `memories`, which fill its room, or are none."""
    message = bytearray(_NUMBERS.size + room_bytes)
    _NUMBERS.pack_into(message, 0, number, described_bytes)
    place = _NUMBERS.size
    for memory in memories:
        part = (ctypes.c_char * memory.size_bytes).from_address(memory.address)
        message[place : place + memory.size_bytes] = part
        place += memory.size_bytes
    return message


def empty(room_bytes: int) -> bytearray:
    """Return memory to receive such a message."""
    return bytearray(_NUMBERS.size + room_bytes)


def numbers(message: bytearray) -> tuple[int, int]:
    """Return the number of a signature, and the size of its description in bytes."""
    number, described_bytes = _NUMBERS.unpack_from(message)
    return number, described_bytes


def unpack(message: bytearray, known: Known, tensors: Tensors, hosts: Sequence[Any]) -> None:
    """Copy the message's room into host tensors."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(message)) + _NUMBERS.size
    for host, size_bytes in zip(hosts, known.sizes_bytes, strict=True):
        if size_bytes:
            ctypes.memmove(tensors.memory(host).address, address, size_bytes)
        address += size_bytes


class Forecast:
    """Signature that both ends predict for a micro-batch, by its place in the mini-batch.

    It is the signature of the two before it, if these were equal. Both ends learn from the same messages, so they
    always predict the same.
    """

    def __init__(self, places: int) -> None:
        self._last: list[int | None] = [None] * places
        self._twice = [False] * places

    def of(self, place: int) -> int | None:
        """Return a signature's number, or None without a prediction."""
        return self._last[place] if self._twice[place] else None

    def learn(self, place: int, number: int) -> None:
        """Record the actual signature."""
        self._twice[place] = self._last[place] == number
        self._last[place] = number
