"""Names of the two halves of an allreduce, operations of the split exchange (bridge/half.h).

The library treats an allreduce with one of these prefixes as a reduce-scatter or an all-gather: each rank has a shard
of the tensor.
"""

from __future__ import annotations

REDUCE_SCATTER_NAMES = "\x7fpaceline.reduce_scatter."
ALL_GATHER_NAMES = "\x7fpaceline.all_gather."


def shard(elements: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return start and end of a rank's shard, in elements; the first shards have one more (core/collectives)."""
    least, larger = divmod(elements, ranks)
    begin = rank * least + min(rank, larger)
    return begin, begin + least + (rank < larger)
