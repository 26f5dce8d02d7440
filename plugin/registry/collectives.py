"""Registry of collectives for gradients; plugin/core/collectives has their schedules."""

from __future__ import annotations

HOROVODS, AUTO = "horovod", "auto"
# Default collective for encoded messages: it encodes a value twice, while the others encode it again on every hop.
OF_CODECS = "direct"
# Collectives that sum in rank order for any number of ranks (algorithms.h: SumsInRankOrder); AUTO can be limited to it.
IN_RANK_ORDER = ("linear", "direct")
# Name -> its number in core (algorithms.h: AllreduceMethod), or -1 (Horovod's) or 4 (auto), and what it does.
COLLECTIVES: dict[str, tuple[int, str]] = {
    HOROVODS: (-1, "Horovod's collectives"),
    "linear": (0, "along a chain of ranks, block by block, and back"),
    "ring": (1, "shards around a ring, block by block"),
    "direct": (2, "each shard to its owner, and back"),
    "doubling": (3, "whole messages between ranks at distance 1, 2, 4, ...: for small messages"),
    AUTO: (4, "the fastest for each message, by prediction and then by measurement"),
}
# The collectives of Paceline.
OWN = tuple(name for name in COLLECTIVES if name not in (HOROVODS, AUTO))
