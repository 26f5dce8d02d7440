"""Tensors that go in parts: alone in several groups of a plan, one behind the other.

Steps that are not armed, and first groups of those that are, have whole ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

Member = TypeVar("Member", str, int)


def with_parts(groups: Sequence[Sequence[Member]]) -> list[tuple[list[Member], int]]:
    """Groups of whole tensors, each with the number of parts it goes in: 1, unless it is one tensor."""
    found: list[tuple[list[Member], int]] = []
    for members, same in itertools.groupby(map(list, groups)):
        times = len(list(same))
        found += [(members, times)] if len(members) == 1 else [(members, 1)] * times
    return found


def parts_of(groups: Sequence[Sequence[Member]]) -> list[int]:
    """For each group the number of parts of which it is one; 1 where its tensors are whole."""
    return [parts for _, parts in with_parts(groups) for _ in range(parts)]


def whole(groups: Sequence[Sequence[Member]]) -> list[list[Member]]:
    """The same groups, of whole tensors."""
    return [members for members, _ in with_parts(groups)]


def first_whole(groups: Sequence[Sequence[Member]]) -> list[list[Member]]:
    """The same groups, the first of whole tensors: it is negotiated."""
    first, *others = with_parts(groups)
    return [first[0], *(members for members, parts in others for _ in range(parts))]
