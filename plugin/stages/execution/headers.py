"""What goes before activations: a header that says which of the signatures so far they have.

Both ends foresee the signature of a micro-batch. Small tensors of a foreseen one travel with the header, in its
message: to hand a message over takes longer than to copy them. Where another signature comes, that room is sent for
nothing.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.stages.execution.activations import Signature
from paceline.stages.execution.tensors import Memory, Tensors

# Tensors of a signature with no more bytes than these, all together, are small.
_SMALL_BYTES = 1 << 16
# The number of a signature, and the size of its description in bytes; 0 if it was described before.
_NUMBERS = struct.Struct("<qq")


@dataclass(frozen=True)
class Known:
    """A signature that both ends know by number. `sizes_bytes`: of its tensors; `room_bytes`: what travels of it with
    the header, all or nothing.
    """

    signature: Signature
    sizes_bytes: tuple[int, ...]
    room_bytes: int

    @staticmethod
    def of(signature: Signature, tensors: Tensors) -> Known:
        """For tensors of this framework, which both ends have."""
        sizes = tuple(tensors.memory(tensors.empty(form)).size_bytes for form in signature.forms)
        total = sum(sizes)
        return Known(signature, sizes, total if total <= _SMALL_BYTES else 0)


def room_of(foreseen: Known | None) -> int:
    """Bytes of the header's message behind the header."""
    return 0 if foreseen is None else foreseen.room_bytes


def packed(number: int, described_bytes: int, room_bytes: int, memories: Sequence[Memory]) -> bytearray:
    """A header's message, with what is in `memories`; these fill its room, or there are none."""
    message = bytearray(_NUMBERS.size + room_bytes)
    _NUMBERS.pack_into(message, 0, number, described_bytes)
    place = _NUMBERS.size
    for memory in memories:
        part = (ctypes.c_char * memory.size_bytes).from_address(memory.address)
        message[place : place + memory.size_bytes] = part
        place += memory.size_bytes
    return message


def empty(room_bytes: int) -> bytearray:
    """For such a message to arrive in."""
    return bytearray(_NUMBERS.size + room_bytes)


def numbers(message: bytearray) -> tuple[int, int]:
    """The number of a signature, and the size of its description in bytes."""
    number, described_bytes = _NUMBERS.unpack_from(message)
    return number, described_bytes


def unpack(message: bytearray, known: Known, tensors: Tensors, hosts: Sequence[Any]) -> None:
    """Fill host tensors with what its room has."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(message)) + _NUMBERS.size
    for host, size_bytes in zip(hosts, known.sizes_bytes, strict=True):
        if size_bytes:
            ctypes.memmove(tensors.memory(host).address, address, size_bytes)
        address += size_bytes


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
