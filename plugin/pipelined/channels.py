"""Storage of one bucket's results between the updates that submit gradients and the updates that use their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.exchange.channel_owners import ChannelOwner
from paceline.exchange.wire import Bucket, Wire, Work
from paceline.native.in_flight import InFlight


class Channel(Protocol):
    """The results that a bucket has in flight, at most K - 1; `held` is their number."""

    bucket: Bucket

    def claim(self) -> None:
        """Own the names in this world. Raises UsageError if another optimizer has gradients under them."""
        ...

    def sync_next(self, calls: int) -> None:
        """Answer exactly the next `calls` submissions with their own results."""
        ...

    def start(self, tensors: Sequence[Any]) -> Work:
        """Submit tensors (Wire.start); the work returns the oldest results, or zeros if there are fewer than K - 1."""
        ...

    def taken(self, held: int) -> list[list[Any]]:
        """Return the results in flight, oldest first, without removing them."""
        ...

    def put(self, results: list[Any]) -> None:
        """Add results, arrays or results of Wire.plain, as if they had just been combined."""
        ...

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """Remove the results of the last submission, and put back the answers to it, if it had any."""
        ...

    def clear(self) -> None:
        """Remove all results, after waiting for those in transit."""
        ...


class LibraryChannel:
    """Results in Horovod's library, under the full names of the bucket's operations."""

    def __init__(self, bucket: Bucket, wire: Wire, in_flight: InFlight, owner: ChannelOwner) -> None:
        self.bucket = bucket
        self._wire = wire
        self._in_flight = in_flight
        self._names = wire.full_names(bucket)
        self._owner = owner
        self.claim()

    def claim(self) -> None:
        """Own the operations' names."""
        self._owner.claim(self._names, self.bucket.name)

    def sync_next(self, calls: int) -> None:
        """Have the library count synchronous calls."""
        for name in self._names:
            self._in_flight.sync_next(name, calls)

    def start(self, tensors: Sequence[Any]) -> Work:
        """Submit tensors under the bucket's name."""
        return self._wire.start(self.bucket, tensors)

    def taken(self, held: int) -> list[list[Any]]:
        """Return arrays, in the type on the wire."""
        for name in self._names if held else ():
            self._in_flight.settle(name)
        return [[self._in_flight.array(name, age) for name in self._names] for age in range(held)]

    def put(self, results: list[Any]) -> None:
        """Add arrays."""
        for name, array in zip(self._names, results, strict=True):
            self._in_flight.put_array(name, array)

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """Remove the newest results, and put the answers back as the oldest."""
        kept = self.taken(held if answers is not None else held + 1)[:-1]
        if answers is not None:
            kept.insert(0, [self._wire.as_sent(tensor) for tensor in answers])
        self.clear()
        for results in kept:
            self.put(results)

    def clear(self) -> None:
        """Wait for results in transit, and remove all."""
        for name in self._names:
            self._in_flight.settle(name)
            self._in_flight.clear(name)


class WaitingChannel:
    """Results in Python, for sparse gradients: they are gathered, for which the library cannot reserve a place."""

    def __init__(self, bucket: Bucket, k: int, wire: Wire) -> None:
        self.bucket = bucket
        self._k = k
        self._wire = wire
        self._works: deque[Work] = deque()
        self._calls = 0

    def claim(self) -> None:
        """Do nothing: Horovod itself refuses a name that is in flight twice."""

    def sync_next(self, calls: int) -> None:
        """Do nothing: synchronous updates do not use this channel."""

    def start(self, tensors: Sequence[Any]) -> Work:
        """Start to gather sparse gradients."""
        # K names in turn, because several gathers may be in flight at once.
        turn = Bucket(f"{self.bucket.name}.{self._calls % self._k}", self.bucket.members)
        self._calls += 1
        self._works.append(self._wire.start(turn, tensors))
        if len(self._works) < self._k:
            return lambda: [self._wire.zeros_like(tensor) for tensor in tensors]
        return self._works.popleft()

    def taken(self, held: int) -> list[list[Any]]:
        """Return tensors."""
        results = [work() for work in self._works]
        self._works = deque(_settled(one) for one in results)
        return results

    def put(self, results: list[Any]) -> None:
        """Add results of Wire.plain."""
        self._works.append(_settled([self._wire.from_plain(one) for one in results]))

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """Wait for the newest results and drop them, and put the answers back as the oldest."""
        self._works.pop()()
        if answers is not None:
            self._works.appendleft(_settled(answers))

    def clear(self) -> None:
        """Wait for all results, and drop them."""
        for work in self._works:
            work()
        self._works.clear()


def _settled(results: list[Any]) -> Callable[[], list[Any]]:
    return lambda: list(results)
