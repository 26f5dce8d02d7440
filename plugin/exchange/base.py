"""Base class of exchanges, which turn gradients into the gradients of an update.

The framework's side (PyTorch: optimizer/reduction.py; Keras and tapes: keras3/optimizer.py) decides *when* gradients
are submitted and stores the results; an `Exchange` decides *what* an exchange means. One update is

    begin(buckets)              where Python sees all gradients of an update at once, also while a graph is traced
    start(bucket, tensors)      for every bucket, in any order; or reduce(...) for all of them
    complete()                  returns True if the answers are gradients
    rescaled(scale)             if the loss was scaled
    update(weights, step)       the optimizer's step, or nothing
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar, Protocol

from paceline import variables
from paceline.codecs.choice import Choice
from paceline.errors import UsageError, UserError
from paceline.exchange.around_updates import AroundUpdates
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.eager import EagerOps
from paceline.exchange.in_flight_state import WEIGHTED, with_residuals, without_residuals
from paceline.exchange.ops import Ops
from paceline.exchange.update_sets import UpdateSets
from paceline.exchange.weighing import mean_of, without_work
from paceline.exchange.wire import Answer, Bucket, Key, Weights, Wire
from paceline.log import log
from paceline.native.agreement import SAME_EXCHANGE, agree
from paceline.native.in_flight import InFlight

# One update that a drain returns: results by key of the parameter, and the factor of the loss, or 1.
Update = tuple[dict[Key, Any], float]
# Factor of the loss: a number, or a variable that holds it.
Scale = Any


class AllExchanges(Protocol):
    """Functions over all exchanges that one exchange needs (paceline.registry.agreement)."""

    # Meaning of the numbers of `agreement`.
    AGREED: str

    def agreement(self, exchange: ExchangeSettings, ranks: int, choice: Choice) -> tuple[int, ...]:
        """Return the numbers that must be equal on all ranks."""

    def described(self, tag: int) -> str:
        """Return a description of the in-flight gradients in a saved state with this tag."""


class Exchange(ABC):
    """Method of combining the gradients of one optimizer or tape over the ranks."""

    # Reason that the loss may not be scaled, for errors; "" if it may.
    unscaled: ClassVar[str] = ""

    def __init__(self, settings: ExchangeSettings, wire: Wire, among: AllExchanges) -> None:
        self.settings = settings
        self.wire = wire
        self.ops: Ops = wire.graph_ops or EagerOps()
        self.among = among
        self.gradients_wire = wire  # over the ranks that share gradients
        self.around = AroundUpdates()
        # Only for exchanges that hold gradients between updates; None where Python sees every step.
        self.sets: UpdateSets | None = None
        # A saved state to restore once the exchanged gradients are known.
        self.loading: dict[str, Any] | None = None
        self._scale: Scale = None
        # True if gradients have their rank's weight appended as one more element; None: not known yet.
        self.weighted: bool | None = None
        self.shared = False  # sharded exchanges: True if all ranks have all answers of this update
        self._met = False
        self._announced = False
        self._drains = 0

    # --- one update -----------------------------------------------------------------------------------------------

    def begin(self, buckets: Sequence[Bucket]) -> None:
        """Prepare an update before its gradients in `buckets`, all of them, are started.

        Waits for the other ranks the first time. Raises UserError if ranks have different exchanges, or if gradients
        other than those of `buckets` are in flight. In a graph, the executions raise (UpdateSets.turn): if a function
        raises in its first trace after making variables, TensorFlow drops it without an error.
        """
        if self.loading is not None:
            state, self.loading = self.loading, None
            self.load(state, buckets)
        fresh = not self._met
        if fresh:
            # Compiled steps of ranks that were in another world do not come here; KerasState compares the exchanges.
            if not (variables.elastic() and self.wire.graph_ops):
                self.meet("exchange", self.agreement(), self.among.AGREED)
            self._met = True
            self.announce(sum(len(bucket.members) for bucket in buckets))
        wanted = {bucket.name: bucket for bucket in buckets}
        known = dict(self.known)
        if known and wanted != known and self._bound and not (self.sets is not None and self.sets.tracing):
            count, before = (sum(len(one.members) for one in many.values()) for many in (wanted, known))
            raise UserError(
                f"{self.wire.label}: {count} variables have gradients, {before} had them in the updates before, of "
                "which something is in flight.",
                "Give every update gradients of the same variables in the same groups, or drain() on all ranks first.",
            )
        self._expect(wanted, fresh)

    def agreement(self) -> list[int]:
        """Return the numbers that must be equal on all ranks."""
        return list(self.among.agreement(self.settings, self.wire.process_set.size(), self.wire.encoding.choice))

    def announce(self, gradients: int) -> None:
        """Report on rank 0, once in a world, the exchange of this number of gradients per update."""
        if not (self._announced or self.settings.synchronous) and self.wire.process_set.rank() == 0:
            log(
                f"exchange={self.settings} begins for {self.wire.label}: {gradients} gradients an update, "
                f"{self.wire.process_set.size()} ranks."
            )
        self.wire.encoding.announce(self.wire.label)
        self._announced = True

    # True if results of weighted gradients are already divided by the contributed weight.
    divides: ClassVar[bool] = False

    def weigh(self, weighted: bool) -> None:
        """Note, before a bucket is started, if its gradients have weights appended.

        Raises UsageError on a change while results of the other kind may be in flight.
        """
        if self.weighted is not None and weighted != self.weighted and self.lag != 0:
            found = ("with a", "without") if weighted else ("without a", "with one")
            raise UsageError(
                f"{self.wire.label}: gradients came {found[0]} weight, after others {found[1]}.",
                "Set optimizer.weight in all updates or in none.",
            )
        self.weighted = weighted

    @abstractmethod
    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        """Start to exchange `tensors` and return at once; calling the answer waits. See also Wire.start."""

    def reduce(self, buckets: Sequence[Bucket], tensors: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Exchange all gradients of an update and return the answers, by bucket; also in a graph."""
        with nullcontext() if self.sets is None else self.sets.turn(buckets):
            results = waited(self.start, buckets, tensors)
        with self.ops.after([one for many in results for one in many]):
            self.complete()
            if self._scale is None:
                return results
            factor = self.rescaled(self._scale)
            return [[one * self.ops.cast(factor, one) for one in many] for many in results]

    def complete(self) -> Any:
        """End an update whose gradients were all started and answered; return True if the answers are gradients."""
        return True

    def share(self) -> None:  # noqa: B027
        """Send all ranks the answers that only one of them received, after `complete`; all ranks must call it."""

    def scaled_by(self, scale: Scale) -> None:
        """Set the factor of the loss for all further updates that `reduce` makes.

        Raises UsageError if the loss may not be scaled.
        """
        if self.unscaled:
            raise UsageError(
                f"{self.wire.label} scales its loss, with an exchange that {self.unscaled}.",
                'Use bfloat16 (of Keras mixed_bfloat16), which needs no loss scaling, or exchange="sync".',
            )
        self._scale = scale

    def rescaled(self, scale: Scale) -> Any:
        """Return the factor for the answers such that they are scaled by `scale`, the factor of this update.

        Raises UsageError as `scaled_by`.
        """
        if self.unscaled:
            self.scaled_by(scale)
        return 1.0

    @property
    def answered(self) -> Any:
        """True if the last update had answers; a tensor in a graph."""
        return True

    def update(self, weights: Weights, step: Callable[[], Any], otherwise: Callable[[], Any] = lambda: None) -> Any:
        """Call `step`, which updates `weights`, if the last update had answers, else `otherwise`."""
        late = self._filled_here > 0
        result = self.ops.cond(self.answered, lambda: self.around.update(weights, step, late), otherwise)
        self.around.look_ahead(weights, self._filled_here)
        return result

    # --- what is in flight ----------------------------------------------------------------------------------------

    @property
    def filled(self) -> int:
        """Number of updates in flight between steps."""
        return 0

    @property
    def lag(self) -> int | None:
        """Age in updates of the gradients that are answered now; None if the answer may include several ages."""
        return 0

    @property
    def at_rest(self) -> bool:
        """True if other gradients may follow: nothing was reduced yet, or all was drained."""
        return True

    def drain(self) -> list[Update]:
        """Remove and return what is in flight, oldest update first. Not in a graph.

        All ranks must call it after the same update.
        """
        return []

    def drained_means(self, weights: Weights) -> list[Update]:
        """Drain as `drain`, and turn weighted arrays into means in the shapes of `weights`.

        Omits updates for which no rank had data.
        """
        updates = self.drain()
        if not self.weighted:
            return updates
        shapes: dict[Key, tuple[int, ...]] = {key: tuple(one.shape) for key, one in weights().items()}
        return [
            ({key: mean_of(one, shapes[key], self.divides) for key, one in results.items()}, scale)
            for results, scale in updates
            if not without_work(results)
        ]

    def drained(self, weights: Weights, updates: int) -> None:
        """Follow `updates` updates that were made with the result of `drain`."""
        self.around.drained(weights, updates)
        self.around.look_ahead(weights, 0)

    @property
    def left(self) -> int:
        """Number of updates that a drain would make, or publish to other ranks, as far as this rank knows."""
        return self.around.left or self.filled

    # True if a drain needs no other rank once all ranks have finished.
    drains_alone: ClassVar[bool] = False
    # True if models differ between ranks until they are averaged, even after a drain.
    models_differ: ClassVar[bool] = False

    def discard(self, answers: Mapping[str, list[Any]]) -> bool:
        """Undo the exchange of this update, on all ranks. `answers`: results so far, by bucket name.

        After `complete`, without answers: drop the results of that update. Returns True if replicas may have diverged.
        """
        return False

    def real_weights(self) -> AbstractContextManager[None]:
        """Return a context in which weights have the values that the updates produced. Not in a graph."""
        return self.around.real_weights()

    def state(self) -> dict[str, Any] | None:
        """Return the state for continuing from here (in_flight_state.py); None if there is none.

        Waits for what is in flight, changes nothing and does not communicate.
        """
        state = self._state()
        if state is not None and state["in_flight"] and self.weighted:
            state = {**state, WEIGHTED: True}
        return with_residuals(state, self.wire.encoding.state(), self.settings.tag)

    def _state(self) -> dict[str, Any] | None:
        """Return the state without the residuals of error feedback."""
        return None

    def differs(self, state: dict[str, Any]) -> bool:
        """Return True if `state`, which `state()` returned, belongs to this rank only.

        Residuals of error feedback, which differ too, are ignored: a rank can continue without them.
        """
        return self.settings.states_differ and bool(state["in_flight"])

    def check(self, state: dict[str, Any]) -> None:
        """Raise ValueError for in-flight gradients of another exchange, which would be lost."""
        if state["in_flight"] and state["k"] != self.settings.tag:
            raise ValueError(f"expected {self.settings.expected}, found {self.among.described(state['k'])}")

    def load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights = dict) -> None:
        """Restore `state`; `buckets` are exchanged from now on.

        Raises UsageError for a state of another exchange, or with gradients that do not form whole buckets.
        """
        rest, residuals = without_residuals(state)
        if residuals is not None:
            self._state()  # waits for what is in flight, which would still change the residuals
        self.wire.encoding.load(residuals)
        if rest is None:
            return
        weighted = self.weighted
        try:
            self.check(rest)
            if rest.get(WEIGHTED):
                self.weigh(True)
                weighted = True
            self._load(rest, buckets, weights)
            self.weighted = weighted
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise UsageError(
                f"{self.wire.label}: the saved state cannot be continued: {error}.",
                "Use the exchange that it was saved with, or drain() before saving.",
            ) from error

    def _load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights) -> None:  # noqa: B027
        """Restore a state that `check` accepts; here, without anything in flight."""

    def forget(self) -> None:
        """Drop what is in flight and all agreements, because ranks failed or changed."""
        self._met, self._announced, self._drains, self.weighted = False, False, 0, None
        self.around.forget()

    def meet(self, what: str, values: list[int], meaning: str, remedy: str = SAME_EXCHANGE) -> None:
        """Wait until all ranks call this with the same values. Raises UserError within a minute if they do not."""
        here = self.wire.library, self.wire.process_set.process_set_id
        agree(*here, f"paceline.{what}.{self.wire.label}", values, meaning, remedy)

    def before_join(self) -> None:
        """Precede hvd.join() of this rank: meet the other ranks if updates need equally many of all.

        Raises UsageError if ranks have made different numbers of updates, UserError if some do not join in a minute.
        """
        self.around.meet_before_join()

    @cached_property
    def in_flight(self) -> InFlight:
        """In-flight results of this process set in the library."""
        return InFlight(self.wire.library, self.wire.process_set.process_set_id)

    # --- for subclasses -------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Bucket]:
        """Buckets that may have something in flight, by name."""
        return {}

    @property
    def _bound(self) -> bool:
        """True if updates must have gradients of the same variables as before."""
        return False

    @property
    def _filled_here(self) -> Any:
        """Number of updates in flight, as `filled`; a tensor within a graph."""
        return 0

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:  # noqa: B027
        """Exchange `buckets` from here on, and no others. `fresh`: first call in this world."""


def waited(
    start: Callable[[Bucket, Sequence[Any]], Callable[[], Any]],
    buckets: Sequence[Bucket],
    tensors: Sequence[Sequence[Any]],
) -> list[list[Any]]:
    """Return the results of all buckets, all of which are started before the first wait."""
    works = [start(bucket, many) for bucket, many in zip(buckets, tensors, strict=True)]
    return [work() for work in works]
