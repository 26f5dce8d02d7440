"""Bytes of a plan of merging: as it is sent, and as each rank holds it.

Sent: what plugin/fusion/offer.py encodes, in numbers of eight bytes. Held: an active plan (core/fusion/active_plan.h)
on 64-bit Linux, which has the group of each tensor and the number of its parts (4 bytes each), and for each group the
names of its tensors. A vector of C++ takes 24 bytes and a string 32, whose text lies outside where it is longer than 15
characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.examples.benchmarks.scale.cases import Case
from paceline.fusion import offer

TENSORS = (100, 1000, 10000)
TENSORS_PER_GROUP = 16
_NUMBER_BYTES, _TENSOR_BYTES = 8, 8
_STRING_BYTES, _SHORT_CHARACTERS = 32, 15
_GROUP_BYTES = 24 + 8  # the names, and how long the group is waited for


@dataclass(frozen=True)
class PlanBytes:
    """A plan that merges so many tensors into so many messages."""

    tensors: int
    messages: int
    sent_bytes: int
    held_bytes: int


def of(tensors: int) -> PlanBytes:
    """A plan of messages of TENSORS_PER_GROUP, of tensors with the names of this benchmark's."""
    parts = -(-tensors // TENSORS_PER_GROUP)
    groups = Case(tensors, parts, 0).names
    group_of = [number for number, names in enumerate(groups) for _ in names]
    sent = offer.encode(1, True, 0.0, [0.0] * len(offer.EXPECTED), group_of)
    return PlanBytes(tensors, parts, _NUMBER_BYTES * len(sent), held_bytes(groups))


def held_bytes(groups: Sequence[Sequence[str]]) -> int:
    """What a rank holds while it follows a plan of these groups of names."""
    names = [name for group in groups for name in group]
    outside = sum(len(name) + 1 for name in names if len(name) > _SHORT_CHARACTERS)
    return (_TENSOR_BYTES + _STRING_BYTES) * len(names) + _GROUP_BYTES * len(groups) + outside
