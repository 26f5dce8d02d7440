"""Groups of a plan that has halves of allreduces (the split exchange).

A message has halves of one kind, or none: all-gathers begin when reduce-scatters have ended, and each rank has shards
of either.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core._core import CostModel
from paceline.fusion.gradient import Gradient, in_order
from paceline.fusion.parts import with_parts
from paceline.native.halves import ALL_GATHER_NAMES, REDUCE_SCATTER_NAMES

# Approximate number of messages of all-gathers: the forward pass waits for the first of them.
GATHERS = 16


def bytes_as_allreduce(name: str, size_bytes: int) -> int:
    """Return the size of an allreduce with the same cost: a half sends each byte once."""
    return size_bytes // 2 if _kind(name) else size_bytes


def of_one_kind(groups: list[list[int]], gradients: Sequence[Gradient]) -> list[list[int]]:
    """Divide groups of several kinds, in the order in which groups are complete; halves are not cut into parts."""
    kinds = [_kind(gradient.name) for gradient in gradients]
    if not any(kinds):
        return groups
    found: list[list[int]] = []
    for members, parts in with_parts(groups):
        for kind in dict.fromkeys(kinds[index] for index in members):
            found += [[index for index in members if kinds[index] == kind]] * (1 if kind else parts)
    return sorted(found, key=lambda group: max((gradients[index].ready_s, index) for index in group))


def gathers(gradients: Sequence[Gradient]) -> list[int]:
    """Return the indices of all-gathers."""
    return [index for index, one in enumerate(gradients) if ALL_GATHER_NAMES in one.name]


def in_shares(indices: Sequence[int], gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
    """Return groups of neighbours, of about a sixteenth of all bytes, whose start-up is not longer than their transfer.

    All-gathers are submitted together; the sooner the first arrives, the sooner the forward pass begins.
    """
    least_bytes = sum(gradients[index].bytes for index in indices) / GATHERS
    if costs.b_s_per_byte > 0:
        least_bytes = max(least_bytes, costs.a_s / costs.b_s_per_byte)
    found: list[list[int]] = [[]]
    size_bytes = 0
    for index in in_order(gradients, indices):
        if found[-1] and size_bytes + gradients[index].bytes / 2 > least_bytes:
            found.append([])
            size_bytes = 0
        found[-1].append(index)
        size_bytes += gradients[index].bytes
    return [group for group in found if group]


def _kind(name: str) -> int:
    """Return 1 for a reduce-scatter, 2 for an all-gather, 0 for other operations."""
    return 1 if REDUCE_SCATTER_NAMES in name else 2 if ALL_GATHER_NAMES in name else 0
