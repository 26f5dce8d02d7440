"""The split exchange: reduce to the owner, update, broadcast (paceline.split.settings).

start(bucket)    reduce to the owner during the backward pass; the answer of every other rank is None. Where the update
                 of each element is independent, every rank owns a shard of the bucket: reduce-scatter
update(step)     each rank updates its own parameters, or its shards, then starts to broadcast or all-gather them
reading          code that reads a parameter in flight waits for its new value (OwnersWire.send)

Keras' updates may be compiled: `reduce` exchanges all gradients, and `update` waits for the new weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from paceline.errors import UsageError
from paceline.exchange.around_updates import EQUAL_UPDATES, AroundUpdates
from paceline.exchange.base import AllExchanges, Exchange, Update, waited
from paceline.exchange.joins import before_joins
from paceline.exchange.wire import Answer, Bucket, Weights, Wire, Work
from paceline.split.owners import Owners
from paceline.split.settings import Split


class OwnersWire(Wire, Protocol):
    """Operations of a framework for the split exchange, in addition to Wire. Owners are ranks in the process set."""

    reload: str  # remedy if ranks that held a part of the optimizer state have left

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False, owner: int | None = None) -> Work:
        """Start Wire.start's operation; with `owner`, a reduce whose result is valid on the owner only.

        `owner` EVERYONE: a reduce-scatter, whose result is valid in the shard of this rank.
        """
        ...

    def cuts(self, bucket: Bucket) -> bool:
        """Return True if every rank updates a shard of the bucket; the same on all ranks."""
        ...

    def cut(self, buckets: Sequence[Bucket], collect: Callable[[], None]) -> None:
        """Cut the parameters of these buckets into shards.

        `collect()` gives all ranks the whole optimizer state; it is called if shards have changed.
        """
        ...

    def shards(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """Return a context in which parameters of these buckets are this rank's shards of them."""
        ...

    def spans(self, ranks: int) -> list[list[tuple[str, int]]]:
        """Return all parameters as (name, bytes) in the order of the backward pass; one owner per span."""
        ...

    def first(self, bucket: Bucket) -> str:
        """Return the name of the first parameter of a bucket."""
        ...

    def send(self, updated: Sequence[Reduced]) -> None:
        """Start to broadcast the parameters of each bucket from its owner, or to all-gather the shards of EVERYONE.

        Code that reads them waits for them; in Keras this method itself waits. `Reduced.work` completes the reduce of a
        bucket's gradients; it is called after the broadcast has arrived.
        """
        ...

    def in_reading_order(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Return `buckets` in the order in which the last forward pass read their parameters."""
        ...

    def land(self, bucket: Bucket | None = None) -> None:
        """Wait for the parameters in flight of the bucket, or for all."""
        ...

    def drop(self) -> None:
        """Discard the parameters in flight, after ranks failed or changed."""
        ...

    def left_out(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """Return a context that hides the gradients of these parameters, and drops their optimizer state at its end."""
        ...

    def zero_if_finite(self, results: Sequence[Any], others: Sequence[Any]) -> Any:
        """Return 0 if the `results` of all owners are finite, else NaN; also wait for `others` (Keras)."""
        ...

    def filled(self, like: Any, number: Any) -> Any:
        """Return a tensor of this number, in the shape and type of `like` (Keras)."""
        ...

    def share_gradients(self, bucket: Bucket, owner: int) -> Callable[[], None]:
        """Start to give all ranks the gradients of `owner`, or of EVERYONE; return a function that waits for them."""
        ...


# Value of an owner: every rank owns a shard.
EVERYONE = -1


class Reduced(NamedTuple):
    """A bucket of this update, its owner, and the function that waits for its reduce."""

    bucket: Bucket
    owner: int
    work: Work

    def here(self, rank: int) -> bool:
        """Return True if this rank has results."""
        return self.owner in (EVERYONE, rank)


class SplitExchange(Exchange):
    """Reduce gradients to owners; `around` updates and broadcasts their parameters."""

    settings: Split
    wire: OwnersWire

    def __init__(self, settings: Split, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        self.around: OwnersUpdates = OwnersUpdates(self)
        self.owners: Owners | None = None
        # Updates since this rank had the optimizer state of all parameters.
        self.updates = 0
        self.stale = False  # ranks of a previous world held the rest of the state
        self.collect: Callable[[], None] = lambda: None  # gives all ranks the whole optimizer state
        self._reduced: dict[str, Reduced] = {}  # of this update
        self._completed = False
        before_joins(self)

    @property
    def rank(self) -> int:
        """This rank in the process set."""
        return int(self.wire.process_set.rank())

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        """Start a reduce to the owner; sparse gradients are gathered, and all ranks apply them."""
        if self._completed:  # step() was skipped
            self._drop()
        self.wire.land(bucket)
        if self.wire.waits_here(tensors):
            return self.wire.start(bucket, tensors)
        self.check_state()
        owner = EVERYONE if self.wire.cuts(bucket) else self.owner_of(self.wire.first(bucket))
        work = self.wire.start(bucket, tensors, owner=owner)
        self._reduced[bucket.name] = one = Reduced(bucket, owner, work)
        return work if one.here(self.rank) else lambda: None

    def reduce(self, buckets: Sequence[Bucket], tensors: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Reduce all gradients of an update; results of other owners' buckets have no meaning.

        Under loss scaling those are NaN if an owner found no finite result, so that all ranks skip the update.
        """
        answers = waited(self.start, buckets, tensors)
        results = [
            self._reduced[bucket.name].work() if answer is None else answer
            for bucket, answer in zip(buckets, answers, strict=True)
        ]
        with self.ops.after([one for many in results for one in many]):
            self.complete()
        if self._scale is None:
            return results
        others = [one for answer, many in zip(answers, results, strict=True) if answer is None for one in many]
        number = self.wire.zero_if_finite([one for answer in answers for one in answer or ()], others)
        return [
            [self.wire.filled(one, number) for one in many] if answer is None else many
            for answer, many in zip(answers, results, strict=True)
        ]

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:
        """Note the buckets of this update: compiled reductions do not call `start` again."""
        if self.wire.waits_later:
            return
        self._reduced = {
            name: Reduced(bucket, self.owner_of(self.wire.first(bucket)), list) for name, bucket in buckets.items()
        }

    def check_state(self) -> None:
        """Raise UsageError if ranks of a previous world held parts of the state."""
        if self.stale:
            raise UsageError(
                f"Rank {self.rank}: {self.wire.label}: the ranks have changed, and former ranks held a part of the "
                "optimizer state.",
                self.wire.reload,
            )

    def owner_of(self, name: str) -> int:
        """Return the owner of a parameter that one rank updates."""
        if self.owners is None:
            self.owners = Owners(self.wire.process_set.size())
        if name not in self.owners:
            self.owners.add(self.wire.spans(self.wire.process_set.size()))
        return self.owners.of(name)

    def complete(self) -> bool:
        """Cut parameters into shards: gradients may be clipped before the update."""
        self.wire.cut(self.cut_buckets(), self.collect)
        self._completed = True
        return True

    def cut_buckets(self) -> list[Bucket]:
        """Return the buckets of this update of which every rank owns a shard."""
        return [one.bucket for one in self._reduced.values() if one.owner == EVERYONE]

    def share(self) -> None:
        """Send all ranks the reduced gradients of all owners."""
        if self._completed and not self.shared:
            self.shared = True
            waits = [self.wire.share_gradients(one.bucket, one.owner) for one in self._reduced.values()]
            for wait in waits:  # ranks may have started them in different orders
                wait()

    def end_update(self) -> list[Reduced]:
        """End this update and return its buckets."""
        reduced = list(self._reduced.values())
        self._reduced.clear()
        self._completed = self.shared = False
        return reduced

    def discard(self, answers: Any) -> bool:
        """Discard the reduced gradients."""
        self._drop()
        return False

    def _drop(self) -> None:
        """End this update without a step; owners already have their results."""
        for one in self.end_update():
            # `reduce` has waited for all; another trace of a compiled step cannot use the tensors of the first one.
            if self.wire.waits_later and not one.here(self.rank):
                one.work()

    def drain(self) -> list[Update]:
        """Wait for parameters in flight; there are no gradients in flight."""
        self.wire.land()
        return []

    def loaded(self) -> None:
        """Record that this rank holds the optimizer state of all parameters."""
        self.updates, self.stale = 0, False

    def forget(self) -> None:
        """Reset; the optimizer state is stale if other ranks held parts of it."""
        super().forget()
        self.wire.drop()
        self._reduced.clear()
        self._completed = self.shared = False
        self.stale = self.stale or self.updates > 0
        self.owners = None


class OwnersUpdates(AroundUpdates):
    """Update the parameters that this rank owns, and broadcast their new values."""

    def __init__(self, exchange: SplitExchange) -> None:
        self._exchange = exchange

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step` with this rank's parameters and shards, and start to send their new values."""
        exchange, wire = self._exchange, self._exchange.wire
        cut = exchange.cut_buckets()
        reduced = {one.bucket.name: one for one in exchange.end_update()}
        others = [one.bucket for one in reduced.values() if not one.here(exchange.rank)]
        with wire.left_out(others), wire.shards(cut):
            result = step()
        exchange.updates += 1
        order = wire.in_reading_order([one.bucket for one in reduced.values()])
        wire.send([reduced[bucket.name] for bucket in order])
        return result

    def real_weights(self) -> AbstractContextManager[None]:
        """Wait for parameters in flight, and return an empty context."""
        self._exchange.wire.land()
        return nullcontext()

    def meet_before_join(self) -> None:
        """Raise UserError within a minute if other ranks still make updates, which need this rank's part."""
        meaning = "calls of hvd.join(), before which all ranks must make equally many updates with the split exchange"
        self._exchange.meet("join", [0], meaning, EQUAL_UPDATES)

    def average(self, weights: Weights) -> None:
        """Do nothing: models are equal."""
