"""The collectives that move gradients; plugin/core/collectives has their schedules."""

from __future__ import annotations

HOROVODS = "gloo"
# Name -> its number in core (algorithms.h: AllreduceMethod), or -1, and what it does.
COLLECTIVES: dict[str, tuple[int, str]] = {
    HOROVODS: (-1, "Horovod's own"),
    "linear": (0, "along a chain of ranks, block by block, and back"),
    "ring": (1, "shards around a ring, block by block"),
    "direct": (2, "each shard to the rank that combines it, and back"),
    "doubling": (3, "all of it between ranks at distance 1, 2, 4, ...: for small messages"),
    "auto": (4, "by what is predicted, and then measured, for messages of a size"),
}
# In the order of core's CodecNames().
CODECS = ("none", "bf16", "trunc16", "q8")


def one_of_codecs(text: str) -> str:
    """`text` if it is one of CODECS; else ValueError with the rule."""
    if text.strip() not in CODECS:
        raise ValueError(f"must be one of {', '.join(CODECS)}")
    return text.strip()


def one_of_collectives(text: str) -> str:
    """`text` if it is one of COLLECTIVES; else ValueError with the rule."""
    if text.strip() not in COLLECTIVES:
        raise ValueError(f"must be one of {', '.join(COLLECTIVES)}")
    return text.strip()
