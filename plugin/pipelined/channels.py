"""Where the results of one bucket wait between the updates that hand them in and the ones that use them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.exchange.channel_owners import ChannelOwner
from paceline.exchange.wire import Bucket, Wire, Work
from paceline.native.in_flight import InFlight


class Channel(Protocol):
    """The K - 1 results at most that a bucket has in flight; `held` says how many they are."""

    bucket: Bucket

    def claim(self) -> None:
        """Own the names in this world of ranks. Raises UsageError if another optimizer has gradients under them."""
        ...

    def sync_next(self, calls: int) -> None:
        """The next so many tensors handed in are answered with their own results, and no others."""
        ...

    def start(self, tensors: Sequence[Any]) -> Work:
        """Hand tensors in (Wire.start); the work gives the oldest results, zeros where there are not K - 1 yet."""
        ...

    def taken(self, held: int) -> list[list[Any]]:
        """The results in flight, oldest first; they stay."""
        ...

    def put(self, results: list[Any]) -> None:
        """Add results, arrays or what Wire.plain made, as if they had just been combined."""
        ...

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """Take out what was handed in last, and put back the answers to it, if it had any."""
        ...

    def clear(self) -> None:
        """Nothing is in flight any more; waits for what travels."""
        ...


class LibraryChannel:
    """In Horovod's library, under the full names of the bucket's operations."""

    def __init__(self, bucket: Bucket, wire: Wire, in_flight: InFlight, owner: ChannelOwner) -> None:
        self.bucket = bucket
        self._wire = wire
        self._in_flight = in_flight
        self._names = wire.full_names(bucket)
        self._owner = owner
        self.claim()

    def claim(self) -> None:
        """See Channel.claim."""
        self._owner.claim(self._names, self.bucket.name)

    def sync_next(self, calls: int) -> None:
        """See Channel.sync_next: the library counts them."""
        for name in self._names:
            self._in_flight.sync_next(name, calls)

    def start(self, tensors: Sequence[Any]) -> Work:
        """See Channel.start."""
        return self._wire.start(self.bucket, tensors)

    def taken(self, held: int) -> list[list[Any]]:
        """See Channel.taken: arrays, as they travelled."""
        for name in self._names if held else ():
            self._in_flight.settle(name)
        return [[self._in_flight.array(name, age) for name in self._names] for age in range(held)]

    def put(self, results: list[Any]) -> None:
        """See Channel.put."""
        for name, array in zip(self._names, results, strict=True):
            self._in_flight.put_array(name, array)

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """See Channel.undo."""
        kept = self.taken(held if answers is not None else held + 1)[:-1]
        if answers is not None:
            kept.insert(0, [self._wire.travelling(tensor) for tensor in answers])
        self.clear()
        for results in kept:
            self.put(results)

    def clear(self) -> None:
        """See Channel.clear."""
        for name in self._names:
            self._in_flight.settle(name)
            self._in_flight.clear(name)


class WaitingChannel:
    """In Python: sparse gradients are gathered, which no place in the library can be set aside for."""

    def __init__(self, bucket: Bucket, k: int, wire: Wire) -> None:
        self.bucket = bucket
        self._k = k
        self._wire = wire
        self._works: deque[Work] = deque()
        self._calls = 0

    def claim(self) -> None:
        """See Channel.claim: Horovod itself refuses a name that travels twice."""

    def sync_next(self, calls: int) -> None:
        """See Channel.sync_next: nothing is handed in while updates are synchronous."""

    def start(self, tensors: Sequence[Any]) -> Work:
        """See Channel.start: sparse gradients are gathered as they are."""
        # Two of one name may be on their way at once.
        turn = Bucket(f"{self.bucket.name}.{self._calls % self._k}", self.bucket.members)
        self._calls += 1
        self._works.append(self._wire.start(turn, tensors))
        if len(self._works) < self._k:
            return lambda: [self._wire.zeros_like(tensor) for tensor in tensors]
        return self._works.popleft()

    def taken(self, held: int) -> list[list[Any]]:
        """See Channel.taken: tensors."""
        results = [work() for work in self._works]
        self._works = deque(_settled(one) for one in results)
        return results

    def put(self, results: list[Any]) -> None:
        """See Channel.put."""
        self._works.append(_settled([self._wire.from_plain(one) for one in results]))

    def undo(self, answers: list[Any] | None, held: int) -> None:
        """See Channel.undo."""
        self._works.pop()()
        if answers is not None:
            self._works.appendleft(_settled(answers))

    def clear(self) -> None:
        """See Channel.clear."""
        for work in self._works:
            work()
        self._works.clear()


def _settled(results: list[Any]) -> Callable[[], list[Any]]:
    return lambda: list(results)
