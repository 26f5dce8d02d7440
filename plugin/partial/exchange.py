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
from paceline.exchange.joins import before_joins
from paceline.exchange.update_sets import UpdateSets
from paceline.exchange.wire import Bucket, Key, Weights, Wire, Work
from paceline.partial.settings import Partial
from paceline.partial.state import PartialBuffers, SavedRounds


class PartialExchange(Exchange):
    """Submit gradients for the next round of their name; the answers are all results that this rank still lacks.

    The first round of a name waits for all ranks. `drain` returns the contents of the send buffers as the last update.
    """

    settings: Partial
    # Late gradients were scaled by an earlier factor.
    unscaled = "does not wait for late gradients"
    divides = True

    def __init__(self, settings: Partial, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        self.around: ModelAveraging = ModelAveraging(
            settings.sync_every, wire, self.ops, self.meet, lambda: self._members, "sync_every"
        )
        self._buffers = PartialBuffers(wire.library, wire.process_set.process_set_id)
        self._known: dict[str, Bucket] = {}
        self._members: set[Key] = set()  # keys of the exchanged gradients
        self._loaded: dict[str, Any] | None = None  # the last restored state
        self._loaded_likes: dict[str, list[tuple[tuple[int, ...], str]]] = {}  # its shapes and types, by bucket name
        self._calls_loaded = 0  # this rank's calls of all names when the state was loaded
        self._settled = False  # drained, and nothing was submitted since
        self._flushed_now = False  # flushed by a drain whose updates are being made
        if wire.graph_ops is not None:
            self.sets = UpdateSets(wire.label, wire.graph_ops)
        self._registered = False  # True if names are registered with weights
        self._drained: dict[str, int] = {}  # rounds of each name at the last drain
        self._calls_drained = 0  # this rank's calls of all names at the last drain
        before_joins(self)

    # --- one update -----------------------------------------------------------------------------------------------

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """Submit `tensors` for the next round. Raises UsageError for sparse gradients."""
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
        """Register names from here on as weighted or not. Raises UsageError as Exchange.weigh."""
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
        """None: a late rank gets the sum of all rounds that it missed."""

    @property
    def at_rest(self) -> bool:
        """True if nothing was submitted since the last drain."""
        return not self._bound or not self._known

    drains_alone = True
    models_differ = True  # a late gradient enters different updates on different ranks

    @property
    def left(self) -> int:
        """1 if there were calls since the last drain, else 0."""
        settled = self._settled and self._calls_drained == self._buffers.calls()
        return int(bool(self._called()) and not settled)

    def drain(self) -> list[Update]:
        """Return one update with all contributions whose results this rank has not received; [] if there are none.

        It has only gradients that are not zero. Waits for all ranks.

        Raises UserError, within a minute, if models are averaged and ranks have made different numbers of updates.
        """
        if not self.left:
            return []
        self.around.meet_before_drain()  # before the flush, which would wait forever
        self._flushed_now = True
        results = {key: result for key, result in self._flushed().items() if result.any()}
        return [(results, 1.0)] if results else []

    def drained(self, weights: Weights, updates: int) -> None:
        """Average on all ranks, including those without an update in this drain."""
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
            # Compiled steps continue with the same buckets without Python.
            self._drained = {name: self._buffers.save(name).rounds for name in names}
        else:
            self._let_go()
        return dict(zip(keys, found, strict=True))

    def _flushed_by_calls(self, buckets: Sequence[Bucket], names: Sequence[str]) -> list[Any]:
        """Flush by the first calls of the names, which continue from a loaded state."""
        for name in names:
            self.in_flight.flush_next(name)

        def flush(tensors: list[Any]) -> list[Any]:
            given = iter(tensors)
            # Start all before waiting for one.
            works = [self.wire.start(one, [next(given) for _ in one.members]) for one in buckets]
            return [result for work in works for result in work()]

        zeros = [self.wire.zeros(*like) for one in buckets for like in self._loaded_likes[one.name]]
        return [np.asarray(result) for result in self.ops.in_graph(flush, zeros)]

    @property
    def _untouched(self) -> dict[str, Any] | None:
        """The loaded state, as long as no call was made since."""
        return self._loaded if self._calls_loaded == self._buffers.calls() else None

    def discard(self, answers: Mapping[str, list[Any]]) -> bool:
        """Flush and drop the results, including late gradients of earlier updates, which are in the same sums.

        A rank that has received their results keeps them; another rank will never receive them.
        """
        if self._called():
            self._flushed()
        return True

    def _state(self) -> dict[str, Any] | None:
        """Return this rank's send buffers and the results it has not received; None after `drain`.

        Does not communicate. Every rank saves its own state, between two barriers, after all ranks have made the same
        calls.
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
        """Restore the state; all ranks must call it, each with its own.

        Raises UserError if the states of the ranks do not fit together, or belong to other ranks.
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
        """Reset. Compiled steps continue with the same buckets."""
        super().forget()
        self._loaded, self._drained = None, {}
        if self.sets is not None:
            self.sets.clear()
        else:
            self._let_go()

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Bucket]:
        """Buckets of the last step, by name."""
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
        """Set the buckets to those of the compiled step that ran last; Python sees only which step was traced last."""
        last = None if self.sets is None else self.sets.last
        if last is not None and last != self._known:
            self._known = dict(last)
            self._members = {member for bucket in last.values() for member in bucket.members}

    def _called(self) -> list[Bucket]:
        """Return the buckets that had calls in this world, or were loaded."""
        self._follow()
        if self._untouched is not None:
            return list(self._known.values())
        names = self.wire.full_names
        return [one for one in self._known.values() if all(map(self._buffers.called, names(one)))]

    @cached_property
    def _owner(self) -> ChannelOwner:
        # The only place where operations become partial ones. Rounds of a name continue whichever optimizer calls it;
        # so only `drain` releases a name to another optimizer, and a release drops nothing.
        registration = self.settings.registration(int(self.wire.process_set.size()), weighted=self._registered)
        return ChannelOwner(self.in_flight, registration, lambda name, limit_s: True)

    def _let_go(self) -> None:
        if self._known:  # else nothing was claimed; and without a world the number of ranks is unknown
            self._owner.release()
        self._known.clear()
