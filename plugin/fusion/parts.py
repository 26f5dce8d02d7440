"""Tensors that are sent in parts: each is alone in several consecutive groups of a plan.

Steps that are not armed, and the first groups of armed ones, have whole tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

Member = TypeVar("Member", str, int)


def with_parts(groups: Sequence[Sequence[Member]]) -> list[tuple[list[Member], int]]:
    """Return groups of whole tensors, each with its number of parts: 1, unless it is a single tensor."""
    found: list[tuple[list[Member], int]] = []
    for members, same in itertools.groupby(map(list, groups)):
        times = len(list(same))
        found += [(members, times)] if len(members) == 1 else [(members, 1)] * times
    return found


def parts_of(groups: Sequence[Sequence[Member]]) -> list[int]:
    """Return, for each group, the number of parts of its tensor; 1 if its tensors are whole."""
    return [parts for _, parts in with_parts(groups) for _ in range(parts)]


def whole(groups: Sequence[Sequence[Member]]) -> list[list[Member]]:
    """Return the same groups with whole tensors."""
    return [members for members, _ in with_parts(groups)]


def first_whole(groups: Sequence[Sequence[Member]]) -> list[list[Member]]:
    """Return the same groups with whole tensors in the first one, which is negotiated."""
    first, *others = with_parts(groups)
    return [first[0], *(members for members, parts in others for _ in range(parts))]
