"""The schedule of averages: parts of the weights, by updates.

Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512: the model is cut into fragments
that are averaged in turn, so that a message has 1/n of the weights. An average may be used some updates after the start
of its message, which overlaps with these updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """Average of one fragment: its message starts after update `start` of a period, its mean is used after `use`."""

    fragment: int
    start: int
    use: int


def turns(sync_every: int, fragments: int, delay: int) -> list[Turn]:
    """Return the turns of a period of `sync_every` updates, which are counted from 1, in the order of their updates.

    Fragment i is used after update (i + 1) H / n, rounded down. Needs n <= H, and a delay that is less than the
    updates between two turns, so that messages do not overlap.
    """
    uses = [(number + 1) * sync_every // fragments for number in range(fragments)]
    return [Turn(number, use - delay, use) for number, use in enumerate(uses)]


def parted(sizes: Mapping[int, int], fragments: int) -> list[list[int]]:
    """Return the weights of each fragment: neighbours, about equally many elements in each.

    `sizes`: elements of each weight, by its number. A fragment may be empty where weights are few or large.
    """
    total, before = max(1, sum(sizes.values())), 0
    parts: list[list[int]] = [[] for _ in range(fragments)]
    for number, size in sizes.items():
        middle = before + size / 2
        parts[min(fragments - 1, int(middle * fragments / total))].append(number)
        before += size
    return parts
