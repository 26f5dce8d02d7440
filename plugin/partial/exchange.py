"""The partial exchange: rounds that do not wait for late ranks (see paceline.partial.settings)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.exchange.averaging import ModelAveraging
from paceline.exchange.base import AllExchanges, Exchange, Update
from paceline.exchange.channel_owners import ChannelOwner
from paceline.exchange.in_flight_state import grouped
from paceline.exchange.update_sets import UpdateSets
from paceline.exchange.wire import Bucket, Key, Weights, Wire, Work
from paceline.partial.settings import Partial
from paceline.partial.state import PartialBuffers, SavedRounds


class PartialExchange(Exchange):
    """Hands gradients in for the next round of their name; the answers are what this rank has not had yet.

    The first round of a name waits for all ranks. `drain` brings out what is in send buffers: the last update.
    """

    settings: Partial
    # Gradients that come late were scaled by what the factor was then.
    unscaled = "does not wait for late gradients"
    divides = True

    def __init__(self, settings: Partial, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        self.around: ModelAveraging = ModelAveraging(
            settings.sync_every, wire, self.ops, self.meet, lambda: self._members, "sync_every"
        )
        self._buffers = PartialBuffers(wire.library, wire.process_set.process_set_id)
        self._known: dict[str, Bucket] = {}
        self._members: set[Key] = set()  # whose gradients travel
        self._loaded: dict[str, Any] | None = None  # the last state to go on from
        self._loaded_likes: dict[str, list[tuple[tuple[int, ...], str]]] = {}  # its shapes and types, by bucket name
        self._calls_loaded = 0  # of all names of this rank, when it was loaded
        self._settled = False  # drained, and nothing was handed in since
        self._flushed_now = False  # by a drain whose updates are being made
        if wire.graph_ops is not None:
            self.sets = UpdateSets(wire.label, wire.graph_ops)
        self._registered = False  # whether names are registered with weights
        self._drained: dict[str, int] = {}  # rounds of each name when it was drained
        self._calls_drained = 0  # of all names of this rank, when it was drained

    # --- one update -----------------------------------------------------------------------------------------------

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """See Exchange.start. Raises UsageError for sparse gradients."""
        if self.wire.waits_here(tensors):
            raise UsageError(
                f"The gradient of {bucket.name!r} is sparse; a partial exchange adds late gradients up.",
                "Give DistributedOptimizer sparse_as_dense=True.",
            )
        known = self._known.get(bucket.name)
        if known is not bucket and known != bucket:
            self._own(bucket)
        self._settled = False
        return self.wire.start(bucket, tensors)

    def weigh(self, weighted: bool) -> None:
        """Register names that come from here on as weighted or not; Exchange.weigh says what is raised."""
        super().weigh(weighted)
        if self._registered != weighted:
            self._registered = weighted
            self.__dict__.pop("_owner", None)

    def _own(self, bucket: Bucket) -> None:
        self._owner.claim(self.wire.full_names(bucket), bucket.name)
        self._known[bucket.name] = bucket
        self._members.update(bucket.members)

    # --- what is in flight ----------------------------------------------------------------------------------------

    @property
    def lag(self) -> None:
        """See Exchange.lag: a late rank is given the sum of what it has missed."""

    @property
    def at_rest(self) -> bool:
        """See Exchange.at_rest."""
        return not self._bound or not self._known

    drains_alone = True
    models_differ = True  # late gradients went into other updates than those in time

    @property
    def left(self) -> int:
        """See Exchange.left: 1 unless no call was made since the last drain."""
        settled = self._settled and self._calls_drained == self._buffers.calls()
        return int(bool(self._called()) and not settled)

    def drain(self) -> list[Update]:
        """One update: all that was contributed and that this rank has not been answered with; none if that is nothing.

        Only of gradients that it has something of. Waits for all ranks.

        Raises UserError, within a minute, if models are averaged and ranks have made unequally many updates.
        """
        if not self.left:
            return []
        self.around.meet_before_drain()  # else they would wait for ever
        self._flushed_now = True
        results = {key: result for key, result in self._flushed().items() if result.any()}
        return [(results, 1.0)] if results else []

    def drained(self, weights: Weights, updates: int) -> None:
        """See Exchange.drained: all ranks average, also those that had nothing left."""
        super().drained(weights, int(self._flushed_now))
        self._flushed_now = False

    def _flushed(self) -> dict[Key, np.ndarray[Any, Any]]:
        buckets = self._called()
        names = [name for one in buckets for name in self.wire.full_names(one)]
        keys = [key for one in buckets for key in one.members]
        touched = self._untouched is None
        found = self._buffers.flush(names) if touched else self._flushed_by_calls(buckets, names)
        self._loaded, self._settled, self._calls_drained = None, True, self._buffers.calls()
        if self.sets is not None:
            self.sets.clear()
            # Steps go on with the same buckets, and Python does not see it.
            self._drained = {name: self._buffers.save(name).rounds for name in names}
        else:
            self._let_go()
        return dict(zip(keys, found, strict=True))

    def _flushed_by_calls(self, buckets: Sequence[Bucket], names: Sequence[str]) -> list[Any]:
        """The first calls of their names, which go on from a loaded state."""
        for name in names:
            self.in_flight.flush_next(name)

        def flush(tensors: list[Any]) -> list[Any]:
            given = iter(tensors)
            # All of them before waiting for one.
            works = [self.wire.start(one, [next(given) for _ in one.members]) for one in buckets]
            return [result for work in works for result in work()]

        zeros = [self.wire.zeros(*like) for one in buckets for like in self._loaded_likes[one.name]]
        return [np.asarray(result) for result in self.ops.in_graph(flush, zeros)]

    @property
    def _untouched(self) -> dict[str, Any] | None:
        """The loaded state, as long as no call was made with it."""
        return self._loaded if self._calls_loaded == self._buffers.calls() else None

    def discard(self, answers: Mapping[str, list[Any]]) -> bool:
        """See Exchange.discard. Late gradients of earlier updates go as well: they were added up with this one's.

        A rank that had been given their results keeps them, one that had not will never have them.
        """
        if self._called():
            self._flushed()
        return True

    def _state(self) -> dict[str, Any] | None:
        """This rank's send buffers, and the results it has not been given; None after `drain`. Asks no other rank.

        To go on from, every rank saves its own where all have made the same calls, between two barriers.
        """
        untouched = self._untouched
        if untouched is not None:
            return untouched
        if self.sets is not None and self.sets.last is None:
            return None
        names = {
            name: key
            for one in self._called()
            for key, name in zip(one.members, self.wire.full_names(one), strict=True)
        }
        saved = {name: self._buffers.save(name) for name in names}
        if self._drained == {name: one.rounds for name, one in saved.items()}:
            return None
        rounds = {key: saved[name].plain() for name, key in names.items()}
        return {"k": self.settings.tag, **self._whose(), "in_flight": [(rounds, 1.0)]}

    def _whose(self) -> dict[str, int]:
        process_set = self.wire.process_set
        return {"rank": int(process_set.rank()), "ranks": int(process_set.size())}

    def _load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights) -> None:
        """All ranks must, each with its own.

        Raises UserError if the states of the ranks do not fit together or are not their own.
        """
        if not state["in_flight"]:
            return
        (rounds,) = grouped(state["in_flight"], buckets)
        saved: dict[str, SavedRounds] = {}
        for bucket, many in rounds.items():
            self._own(bucket)
            for name, one in zip(self.wire.full_names(bucket), many, strict=True):
                saved[name] = SavedRounds.of(one)
            self._loaded_likes[bucket.name] = [(one["send"].shape, one["send"].dtype.name) for one in many]
        whose, mine = ({key: one[key] for key in ("rank", "ranks")} for one in (state, self._whose()))
        foreign = f"rank {whose['rank']} of {whose['ranks']}, loaded by rank {mine['rank']} of {mine['ranks']}"
        self._buffers.restore(saved, foreign if whose != mine else "")
        if self.sets is not None:
            self.sets.put({bucket.name: bucket for bucket in rounds})
        self._loaded, self._calls_loaded, self._drained, self._settled = state, self._buffers.calls(), {}, False

    def forget(self) -> None:
        """See Exchange.forget. Steps that were compiled go on with the same buckets."""
        super().forget()
        self._loaded, self._drained = None, {}
        if self.sets is not None:
            self.sets.clear()
        else:
            self._let_go()

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Bucket]:
        """See Exchange.known."""
        self._follow()
        return self._known

    @property
    def _bound(self) -> bool:
        return not self._settled if self.sets is None else self.sets.last is not None

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:
        if fresh or dict(buckets) != self._known:
            self._known, self._members = {}, set()
            for bucket in buckets.values():
                self._own(bucket)
        self._settled = False

    def _follow(self) -> None:
        """Know the buckets of the compiled step that ran last: Python sees only which step was traced last."""
        last = None if self.sets is None else self.sets.last
        if last is not None and last != self._known:
            self._known = dict(last)
            self._members = {member for bucket in last.values() for member in bucket.members}

    def _called(self) -> list[Bucket]:
        """The buckets that calls were made of in this world of ranks, or that were loaded."""
        self._follow()
        if self._untouched is not None:
            return list(self._known.values())
        names = self.wire.full_names
        return [one for one in self._known.values() if all(map(self._buffers.called, names(one)))]

    @cached_property
    def _owner(self) -> ChannelOwner:
        # The one place where operations become partial ones. Rounds go on under a name whoever makes the calls; so only
        # `drain` leaves it to another optimizer, and nothing is dropped with it.
        registration = self.settings.registration(int(self.wire.process_set.size()), weighted=self._registered)
        return ChannelOwner(self.in_flight, registration, lambda name, limit_s: True)

    def _let_go(self) -> None:
        if self._known:  # else nothing was claimed; and without a world nobody says how many ranks there are
            self._owner.release()
        self._known.clear()
