"""Observation of the split exchange: the parts of a reduced bucket that are valid on this rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from paceline.exchange.wire import Bucket
from paceline.history.sums import array_of
from paceline.native.halves import shard
from paceline.split.exchange import EVERYONE


class Share(NamedTuple):
    """The owner of a bucket, and the range of each of its tensors that this rank has."""

    owner: int
    ranges: list[tuple[int, int]]


class Shares:
    """Shares of the buckets of one exchange."""

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    def of(self, bucket: Bucket, results: Sequence[Any]) -> Share | None:
        """Return the share of this rank; None if every rank has the whole result, as with sparse gradients."""
        wire = self._exchange.wire
        if wire.waits_here(results):
            return None
        counts = [array_of(one).size for one in results]
        if not wire.cuts(bucket):
            return Share(self._exchange.owner_of(wire.first(bucket)), [(0, count) for count in counts])
        first, last = shard(sum(counts), self._exchange.rank, int(wire.process_set.size()))
        ranges, before = [], 0
        for count in counts:
            ranges.append((min(max(first - before, 0), count), min(max(last - before, 0), count)))
            before += count
        return Share(EVERYONE, ranges)
