"""The collectives that move gradients; plugin/core/collectives has their schedules."""

from __future__ import annotations

HOROVODS, AUTO = "horovod", "auto"
# What messages go by that travel through a codec, where nothing else was chosen: they are encoded twice, wherever else
# by every rank on the way.
OF_CODECS = "direct"
# Those that add up in the order of ranks, whatever their number (algorithms.h: SumsInRankOrder). AUTO can be told to.
IN_RANK_ORDER = ("linear", "direct")
# Name -> its number in core (algorithms.h: AllreduceMethod), or -1 (Horovod's) or 4 (auto), and what it does.
COLLECTIVES: dict[str, tuple[int, str]] = {
    HOROVODS: (-1, "Horovod's own"),
    "linear": (0, "along a chain of ranks, block by block, and back"),
    "ring": (1, "shards around a ring, block by block"),
    "direct": (2, "each shard to the rank that combines it, and back"),
    "doubling": (3, "all of it between ranks at distance 1, 2, 4, ...: for small messages"),
    AUTO: (4, "for each message the one that is predicted, then measured, to be the fastest"),
}
