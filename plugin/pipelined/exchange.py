"""The pipelined exchange: results are delayed by K - 1 updates (see paceline.pipelined.settings)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.exchange.base import AllExchanges, Exchange, Scale, Update
from paceline.exchange.channel_owners import ChannelOwner
from paceline.exchange.in_flight_state import grouped
from paceline.exchange.update_sets import UpdateSets
from paceline.exchange.wire import Answer, Bucket, Weights, Wire
from paceline.native.exchanges import PIPELINED
from paceline.pipelined.channels import Channel, LibraryChannel, WaitingChannel
from paceline.pipelined.compensation import Compensation
from paceline.pipelined.settings import Pipelined


class PipelinedExchange(Exchange):
    """Submit gradients, and answer with the results of K - 1 updates ago.

    The first `warmup_steps` updates are synchronous and use no codec. The K - 1 updates after them, and after every
    `drain`, have no answer: `start` returns zeros, and the update must be skipped. Three cells hold the position:

        warm    synchronous updates still to come
        filled  updates in flight: grows from 0 by one in each update, up to K - 1
        scales  factors of the loss in the last K - 1 updates, oldest first; 0: not known yet

    Where Python sees every update (PyTorch), a bucket may start later than others, or return after it was frozen. It is
    then some results *behind* those that are `filled`, and has no answer (None) until it has K - 1 results of its own.
    """

    settings: Pipelined

    def __init__(self, settings: Pipelined, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        if settings.compensates:
            self.around = Compensation(settings, wire, self.ops)
        self._full = settings.delay
        self._warm = self.ops.cell(settings.warmup_steps)
        self._filled = self.ops.cell(0)
        self._scales = self.ops.cell([0.0] * self._full)
        self._answers_scale = self.ops.cell(0.0)  # factor of the loss of the last answers
        self._answered = self.ops.cell(True)
        self._channels: dict[str, Channel] = {}
        # Channels of all compiled steps, which may run again; `_channels` are those of the step that ran last.
        self._of_steps: dict[Bucket, Channel] = {}
        if wire.graph_ops is not None:
            self.sets = UpdateSets(wire.label, wire.graph_ops)
        self._behind: dict[str, int] = {}
        self._started: set[str] = set()  # buckets of the current update
        self._drained = False  # True if nothing was submitted since the last drain
        # The only place where operations become pipelined ones.
        self._owner = ChannelOwner(self.in_flight, (PIPELINED, settings.k, 0))

    # --- one update -----------------------------------------------------------------------------------------------

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        """Submit `tensors`; the answer has the results of K - 1 updates ago."""
        # Only where Python sees every update. In compiled steps the library counts warm-up, and always uses the codec.
        exact = self.sets is None and self._warm.value() > 0
        if self._warm.value() > 0 and (bucket.name not in self._channels or self._apart(bucket)):
            self._owner.free(self.wire.full_names(bucket, exact))
            return self.wire.start(bucket, tensors, exact)
        channel = self._channel(bucket, self.wire.waits_here(tensors))
        self._drained = False
        self._started.add(bucket.name)
        work = channel.start(tensors)
        if bucket.name not in self._behind:
            return work

        # None, because zeros would change momentum. The caller skips an update without any answers.
        def answer() -> list[Any] | None:
            found = work()
            full = [name for name in self._started if self._held(name) == self._full]
            return found if bucket.name in full or not full else None

        return answer

    def complete(self) -> Any:
        """Count the update, and return True if it had answers."""
        where = self.ops.where
        if self.sets is None and self._warm.read() <= 0:
            self._level()
            if not self._started:  # an update without a single gradient puts nothing in flight
                self._answered.assign(False)
                return False
        warm, filled = self._warm.read(), self._filled.read()
        self._answered.assign(where(warm > 0, True, filled == self._full))
        if self._behind and filled == self._full:
            for name in list(self._behind):
                self._fall_behind(name, self._behind[name] - 1)
        self._filled.assign(where(warm > 0, filled, where(filled < self._full, filled + 1, filled)))
        self._warm.assign(where(warm > 0, warm - 1, warm))
        scales = self._scales.read()
        self._answers_scale.assign(where(warm > 0, 0.0, scales[0]))
        self._scales.assign(where(warm > 0, scales, self.ops.shifted(scales, 0.0)))
        self._started.clear()
        return self.answered

    def _level(self) -> None:
        """Drop channels that had no submission, and count from the bucket that is least behind."""
        # A frozen parameter must not get an old gradient when it is unfrozen.
        for name in [name for name in self._channels if name not in self._started]:
            self._channels.pop(name).clear()
            self._behind.pop(name, None)
        filled = self._filled.read()
        least = min((self._behind.get(name, 0) for name in self._started), default=filled)
        if least:
            self._filled.assign(filled - least)
            for name in list(self._behind):
                self._fall_behind(name, self._behind[name] - least)

    def _fall_behind(self, name: str, updates: int) -> None:
        self._behind[name] = updates
        if not updates:
            del self._behind[name]

    def _held(self, name: str) -> int:
        """Return the number of results that a bucket has in flight."""
        return self.filled - self._behind.get(name, 0)

    def rescaled(self, scale: Scale) -> Any:
        """Return the ratio of `scale` to the factor with which the answers were scaled. Call after `complete`."""
        self.around.scaled(scale)
        where = self.ops.where
        now, before = self.ops.fraction(scale), self._answers_scale.read()
        factor = where(before > 0, now / where(before > 0, before, 1.0), 1.0)
        with self.ops.after([factor]):
            # The factor changes only with updates: batches dropped since the last update had this factor, too.
            self._scales.assign(self.ops.without_zeros(self._scales.read(), now))
        return where(self.answered, factor, 1.0)

    @property
    def answered(self) -> Any:
        """True if the last update had answers; a tensor in a graph."""
        return self._answered.read()

    # --- what is in flight ----------------------------------------------------------------------------------------

    @property
    def filled(self) -> int:
        """Number of updates in flight."""
        return int(self._filled.value())

    @property
    def lag(self) -> int:
        """K - 1; 0 during warm-up."""
        return 0 if self._warm.value() > 0 else self._full

    @property
    def at_rest(self) -> bool:
        """True if nothing is in flight, and all was drained or nothing was submitted."""
        drained = self._drained if self.sets is None else self.sets.last is None
        return not self.filled and (drained or not self._channels)

    def drain(self) -> list[Update]:
        """Wait for the updates in flight, and remove and return them. All ranks must call it after the same update.

        Raises UserError if they do not within a minute, RuntimeError with the reason if a result does not arrive.
        """
        self.meet("drain", [self._drains, self.filled], "drains before and updates in flight")
        self._drains += 1
        taken = self._taken()
        for channel in self._channels.values():
            channel.clear()
        self._begin_filling()
        self._drained = True
        if self.sets is not None:
            self._begin_warm_up(int(self._warm.value()))  # the library counts warm-up for each name
        return taken

    def discard(self, answers: Mapping[str, list[Any]]) -> bool:
        """Remove the newest results from what is in flight, and put the answers back."""
        for name in self._started:
            held = self._held(name)
            self._channels[name].undo(answers[name] if held == self._full else None, held)
        self._started.clear()
        return False

    def _state(self) -> dict[str, Any] | None:
        """Return the state, which is equal on all ranks."""
        around, warm = self.around.state(), int(self._warm.value())
        if not self.filled and warm == self.settings.warmup_steps and around is None:
            return None
        plain = self.wire.plain
        in_flight = [({key: plain(one) for key, one in results.items()}, scale) for results, scale in self._taken()]
        state = {"k": self.settings.tag, "warm": warm, "in_flight": in_flight}
        return state if around is None else {**state, self.around.key: around}

    def check(self, state: dict[str, Any]) -> None:
        """Raise ValueError for a state with another K, even with nothing in flight: it has counts of updates."""
        if state["k"] != self.settings.tag:
            raise ValueError(f"expected {self.settings.expected}, found {self.among.described(state['k'])}")

    def _load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights) -> None:
        self.forget()
        updates = grouped(state["in_flight"], buckets)
        for results in updates:
            for bucket, values in results.items():
                self._channel(bucket, self.wire.waits_here(values)).put(values)
        for name in self._channels:
            self._fall_behind(name, len(updates) - sum(name in {one.name for one in results} for results in updates))
        self._begin_warm_up(state["warm"])
        if self.sets is not None and updates:
            self.sets.put({bucket.name: bucket for bucket in updates[0]})
        self._filled.set(len(updates))
        scales = [float(scale) for _, scale in state["in_flight"]]
        self._scales.set([0.0] * (self._full - len(updates)) + scales)
        self.around.load(state.get(self.around.key), weights)

    def forget(self) -> None:
        """Reset. Compiled steps continue with the same buckets, without Python in between."""
        super().forget()
        if self.sets is not None:
            self._owner.empty()
        else:
            self._owner.release()
        self._channels = {}
        self._begin_filling()
        self._drained = False
        self._begin_warm_up(self.settings.warmup_steps)

    def _begin_warm_up(self, updates: int) -> None:
        self._warm.set(updates)
        channels = self._of_steps if self.sets is not None else self._channels
        for channel in channels.values() if self.settings.warmup_steps else ():
            self._sync_next(channel)

    def _sync_next(self, channel: Channel) -> None:
        if not self._apart(channel.bucket):
            channel.sync_next(int(self._warm.value()))

    def _apart(self, bucket: Bucket) -> bool:
        """Return True if synchronous updates use other names for the bucket, and not its channel."""
        return self.sets is None and self.wire.full_names(bucket, True) != self.wire.full_names(bucket)

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Bucket]:
        """Buckets of the last step, by name."""
        self._follow()
        return {name: channel.bucket for name, channel in self._channels.items()}

    @property
    def _bound(self) -> bool:
        return self.filled > 0

    @property
    def _filled_here(self) -> Any:
        return self._filled.read()

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:
        changed = self.known != buckets
        if self.sets is not None:
            if changed and not self._bound:
                self.sets.clear()
            self._channels = {}  # results of other steps stay in flight: they may run again
        for name in [name for name in self._channels if name not in buckets]:
            self._channels.pop(name).clear()
        for bucket in buckets.values():
            channel = self._channel(bucket)
            if fresh:
                channel.claim()
        if fresh or (changed and self.sets is not None):
            self._begin_warm_up(int(self._warm.value()))
        self._drained = False

    def _channel(self, bucket: Bucket, waits: bool = False) -> Channel:
        known = self._channels.get(bucket.name)
        if known is not None and (known.bucket is bucket or known.bucket == bucket):
            return known
        made: Channel
        if bucket in self._of_steps:
            made = self._channels[bucket.name] = self._of_steps[bucket]
            return made
        if waits:
            made = WaitingChannel(bucket, self.settings.k, self.wire)
        else:
            made = LibraryChannel(bucket, self.wire, self.in_flight, self._owner)
        if self._warm.value() > 0:  # if gradients are expected before they are submitted
            self._sync_next(made)
        self._channels[bucket.name] = made
        if self.sets is not None:
            self._of_steps[bucket] = made
        else:
            self._fall_behind(bucket.name, self.filled)
        return made

    def _follow(self) -> None:
        """Set the channels to those of the compiled step that ran last; Python sees only which step was traced last."""
        last = None if self.sets is None else self.sets.last
        if last is not None:
            self._channels = {name: self._of_steps[bucket] for name, bucket in last.items()}

    def _taken(self) -> list[Update]:
        self._follow()
        filled = self.filled
        known = [1.0, *(one for one in (self._answers_scale.value(), *self._scales.value()) if one)]
        scales = [one or known[-1] for one in list(self._scales.value())[self._full - filled :]]
        updates: list[Update] = [({}, float(scale)) for scale in scales]
        for name, channel in self._channels.items():
            held = self._held(name)
            for age, results in enumerate(channel.taken(held), filled - held):
                updates[age][0].update(zip(channel.bucket.members, results, strict=True))
        return updates

    def _begin_filling(self) -> None:
        self._behind.clear()
        self._started.clear()
        self._filled.set(0)
        if self.sets is not None:
            self.sets.clear()
        self._scales.set([0.0] * self._full)
        self._answers_scale.set(0.0)
