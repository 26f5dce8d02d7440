"""Spans of neighbouring gradients that form one message, or whose parameters have one owner."""

from __future__ import annotations

from collections.abc import Sequence

# A span is an eighth of all gradients, within these limits in bytes: a bucket of the whole model could be sent only
# after the backward pass.
LEAST_SPAN_BYTES, SPAN_BYTES, SPANS = 1 << 16, 1 << 20, 8


def spans(sizes_bytes: Sequence[int], count: int = SPANS) -> list[list[int]]:
    """Return indices of neighbours, from last to first, in about `count` spans of bytes within the limits above."""
    most_bytes = min(max(sum(sizes_bytes) // count, LEAST_SPAN_BYTES), SPAN_BYTES)
    found: list[list[int]] = []
    span_bytes = 0
    for number in reversed(range(len(sizes_bytes))):
        if not found or span_bytes + sizes_bytes[number] > most_bytes:
            found.append([])
            span_bytes = 0
        found[-1].append(number)
        span_bytes += sizes_bytes[number]
    return found


def spans_of(ranks: int, shards: bool = False) -> int:
    """Return the number of spans for `ranks`: at least two per rank, and more for `shards`, which a plan merges."""
    return max(4 * SPANS if shards else SPANS, 2 * ranks)
