"""The split exchange: gradients to their owner, its update, new weights to all (see paceline.split.settings).

start(bucket)    reduces to the owner of its parameters, under the backward pass; the others are answered None
update(step)     each rank makes the updates of its own parameters, then starts to broadcast what became of them
reading          a parameter whose new value is on its way is waited for where it is read (OwnersWire.send)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from paceline.errors import UsageError
from paceline.exchange.around_updates import AroundUpdates
from paceline.exchange.base import AllExchanges, Exchange, Update
from paceline.exchange.wire import Answer, Bucket, Weights, Wire, Work
from paceline.split.owners import Owners
from paceline.split.settings import Split


class OwnersWire(Wire, Protocol):
    """What the split exchange needs of a framework beside a Wire. Owners are ranks in the process set."""

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False, owner: int | None = None) -> Work:
        """See Wire.start. With an `owner` it alone is given the result; on others the answer means nothing."""
        ...

    def spans(self, ranks: int) -> list[list[tuple[str, int]]]:
        """All parameters, name and bytes, in the order of the backward pass; those of a span share an owner."""
        ...

    def first(self, bucket: Bucket) -> str:
        """Name of a bucket's first parameter."""
        ...

    def send(self, bucket: Bucket, owner: int, sent: Work) -> None:
        """Start to give all ranks the weights of the bucket that `owner` has; who reads them waits for them.

        `sent` is called when they are there: the bucket's gradients have left this rank by then.
        """
        ...

    def in_reading_order(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """`buckets` in the order in which the last forward pass read their weights."""
        ...

    def land(self, bucket: Bucket | None = None) -> None:
        """Wait until the weights of the bucket, or all, are there."""
        ...

    def drop(self) -> None:
        """Forget the weights on their way: the ranks failed or changed."""
        ...

    def left_out(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """A context for a step in which parameters of these have no gradient, and after which they have no state."""
        ...

    def share_gradients(self, bucket: Bucket, owner: int) -> Callable[[], None]:
        """Start to give all ranks the gradients that `owner` has; what is returned waits for them."""
        ...


class Reduced(NamedTuple):
    """A bucket of this update, its owner, and what waits until its gradients have left."""

    bucket: Bucket
    owner: int
    work: Work


class SplitExchange(Exchange):
    """Reduces to owners; `around` makes their updates and gives all ranks the new weights."""

    settings: Split
    wire: OwnersWire

    def __init__(self, settings: Split, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        self.around: OwnersUpdates = OwnersUpdates(self)
        self.owners: Owners | None = None
        # Since this rank had the optimizer's state of all parameters.
        self.updates = 0
        self.stale = False  # whether ranks of a world that ended had what it lacks
        self._reduced: dict[str, Reduced] = {}  # of this update
        self._completed = False

    @property
    def rank(self) -> int:
        """This rank in the process set."""
        return int(self.wire.process_set.rank())

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        """See Exchange.start. Sparse gradients are gathered as ever: all ranks update their parameters alike."""
        if self._completed:  # the optimizer was not stepped
            self._drop()
        self.wire.land(bucket)
        if self.wire.waits_here(tensors):
            return self.wire.start(bucket, tensors)
        owner = self.owner_of(self.wire.first(bucket))
        work = self.wire.start(bucket, tensors, owner=owner)
        self._reduced[bucket.name] = Reduced(bucket, owner, work)
        return work if owner == self.rank else lambda: None

    def owner_of(self, name: str) -> int:
        """Who updates the parameter. Raises UsageError where another world's ranks have parts of the state."""
        if self.stale:
            raise UsageError(
                f"Rank {self.rank}: {self.wire.label} goes on among other ranks, but ranks that are gone had a part of "
                "the optimizer's state.",
                "Call load_state_dict() on all ranks with what consolidate_state_dict() had collected before; "
                "hvd.elastic.TorchState does so.",
            )
        if self.owners is None:
            self.owners = Owners(self.wire.process_set.size())
        if name not in self.owners:
            self.owners.add(self.wire.spans(self.wire.process_set.size()))
        return self.owners.of(name)

    def complete(self) -> bool:
        """See Exchange.complete."""
        self._completed = True
        return True

    def share(self) -> None:
        """See Exchange.share."""
        if self._completed and not self.shared:
            self.shared = True
            waits = [self.wire.share_gradients(one.bucket, one.owner) for one in self._reduced.values()]
            for wait in waits:  # ranks may have started them in different orders
                wait()

    def end_update(self) -> list[Reduced]:
        """This update's buckets, with nothing left of it."""
        reduced = list(self._reduced.values())
        self._reduced.clear()
        self._completed = self.shared = False
        return reduced

    def discard(self, answers: Any) -> bool:
        """See Exchange.discard: what was reduced is not used."""
        self._drop()
        return False

    def _drop(self) -> None:
        """End this update without its step; owners have been answered."""
        for one in self.end_update():
            if one.owner != self.rank:
                one.work()

    def drain(self) -> list[Update]:
        """No gradients are in flight; weights that travel are waited for."""
        self.wire.land()
        return []

    def loaded(self) -> None:
        """This rank has the optimizer's state of all parameters."""
        self.updates, self.stale = 0, False

    def forget(self) -> None:
        """See Exchange.forget."""
        super().forget()
        self.wire.drop()
        self._reduced.clear()
        self._completed = self.shared = False
        self.stale = self.stale or self.updates > 0
        self.owners = None


class OwnersUpdates(AroundUpdates):
    """Makes updates of the parameters that this rank owns, and gives all ranks their new values."""

    def __init__(self, exchange: SplitExchange) -> None:
        self._exchange = exchange

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """See AroundUpdates.update."""
        exchange, wire = self._exchange, self._exchange.wire
        reduced = {one.bucket.name: one for one in exchange.end_update()}
        others = [one.bucket for one in reduced.values() if one.owner != exchange.rank]
        with wire.left_out(others):
            result = step()
        exchange.updates += 1
        for bucket in wire.in_reading_order([one.bucket for one in reduced.values()]):
            wire.send(bucket, reduced[bucket.name].owner, reduced[bucket.name].work)
        return result

    def real_weights(self) -> AbstractContextManager[None]:
        """See AroundUpdates.real_weights."""
        self._exchange.wire.land()
        return nullcontext()

    def average(self, weights: Weights) -> None:
        """See AroundUpdates.average: they are equal."""
