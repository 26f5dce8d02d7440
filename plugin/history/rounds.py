"""Observation of partial rounds: which rounds a result covers, and which gradients are late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from paceline.exchange.wire import Bucket
from paceline.history.records import Applied, Lost
from paceline.history.sums import Sums, sums_of
from paceline.partial.state import PartialBuffers, SavedRounds


class Rounds:
    """Rounds of the tensors of one exchange. After each result it reads the library's counts of the name."""

    def __init__(self, exchange: Any, x: int) -> None:
        self._wire = exchange.wire
        self._x = x
        self._buffers = PartialBuffers(self._wire.library, self._wire.process_set.process_set_id)
        self._full_names: dict[str, str] = {}
        self._received: dict[str, int] = {}

    def meet(self, bucket: Bucket) -> None:
        """Note the bucket's tensors, before a call. Rounds that another optimizer has made are left out."""
        for key, full in zip(bucket.members, self._wire.full_names(bucket), strict=True):
            if self._full_names.get(str(key)) != full:
                self._full_names[str(key)] = full
                known = self._buffers.called(full)
                self._received[str(key)] = _received(self._buffers.save(full)) if known else 0

    def answered(self, name: str, step: int, sums: Sums) -> Applied | None:
        """Return the record of a result that was received.

        None if the world has ended since, with its counts: another tensor's error ends this update.
        """
        saved = self._buffers.save(self._full_names[name])
        return None if _received(saved) < self._received[name] else self._applied(name, step, sums, saved, False)

    def drained(self, step: int, results: Mapping[str, Sums]) -> Iterator[Applied]:
        """Yield the records of results that a drain returned; it leaves out those that are zero."""
        for name, saved in self._saved():
            if _received(saved) > self._received[name]:
                sums = results.get(name) or sums_of(np.zeros_like(saved.results))
                yield self._applied(name, step, sums, saved, True)

    def discarded(self, step: int) -> Iterator[Lost]:
        """Yield the records of results that were dropped."""
        for name, saved in self._saved():
            after, received = self._received[name], _received(saved)
            if received > after:
                self._received[name] = received
                yield Lost(self._x, step, name, (), "discard", after, received)

    def performed(self) -> dict[str, int]:
        """Return the number of rounds received so far, by tensor."""
        return dict(self._received)

    def forget(self) -> None:
        """Read all counts again, after a state was loaded."""
        self._full_names.clear()

    def _saved(self) -> Iterator[tuple[str, SavedRounds]]:
        for name, full in self._full_names.items():
            if self._buffers.called(full):
                yield name, self._buffers.save(full)

    def _applied(self, name: str, step: int, sums: Sums, saved: SavedRounds, drain: bool) -> Applied:
        after, received = self._received[name], _received(saved)
        self._received[name] = received
        return Applied(
            self._x, step, name, sums, drain=drain, after=after, received=received, rounds=saved.rounds,
            pending=saved.pending,
        )  # fmt: skip


def _received(saved: SavedRounds) -> int:
    """Return the number of rounds whose results this rank has received."""
    return saved.rounds - saved.missed
