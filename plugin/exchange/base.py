"""What becomes of gradients between the backward pass and the update.

The framework's side (PyTorch: optimizer/reduction.py; Keras and tapes: keras3/optimizer.py) decides *when* gradients
travel and puts the results back; an `Exchange` decides *what* an exchange means. One update goes

    begin(buckets)              where Python sees all gradients of an update at once, also while a graph is made
    start(bucket, tensors)      for every bucket, in any order; or reduce(...) for all of them
    complete()                  whether the answers are gradients
    rescaled(scale)             if the loss was scaled
    update(weights, step)       the optimizer's step, or nothing
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar, Protocol

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
from paceline.native.agreement import SAME_EXCHANGE, agree
from paceline.native.in_flight import InFlight
from paceline.telling import tell

# One update that a drain takes out: results by whose they are, and the factor that the loss was scaled by, or 1.
Update = tuple[dict[Key, Any], float]
# A factor that a loss is multiplied with: a number, or a variable that holds it.
Scale = Any


class AllExchanges(Protocol):
    """What an exchange must know of all there are (paceline.registry.agreement)."""

    # What the numbers of `agreement` are.
    AGREED: str

    def agreement(self, exchange: ExchangeSettings, ranks: int, choice: Choice) -> tuple[int, ...]:
        """What must be the same on all ranks, in whole numbers."""

    def described(self, tag: int) -> str:
        """What a saved state with this tag has in flight."""


class Exchange(ABC):
    """How gradients of one optimizer or tape are combined over the ranks."""

    # Why their loss may not be scaled, as errors say it of the exchange; "" where it may.
    unscaled: ClassVar[str] = ""

    def __init__(self, settings: ExchangeSettings, wire: Wire, among: AllExchanges) -> None:
        self.settings = settings
        self.wire = wire
        self.ops: Ops = wire.graph_ops or EagerOps()
        self.among = among
        self.gradients_wire = wire  # over the ranks that share gradients
        self.around = AroundUpdates()
        # Of exchanges that hold gradients between updates; None where Python sees every step.
        self.sets: UpdateSets | None = None
        # A saved state to go on from, once it is known which gradients travel.
        self.loading: dict[str, Any] | None = None
        self._scale: Scale = None
        # Whether gradients have their rank's weight behind them, as one element more; None: not known yet.
        self.weighted: bool | None = None
        self.shared = False  # whether all ranks have all answers of this update, where owners alone are given them
        self._met = False
        self._announced = False
        self._drains = 0

    # --- one update -----------------------------------------------------------------------------------------------

    def begin(self, buckets: Sequence[Bucket]) -> None:
        """Before gradients of `buckets`, all of an update, are started.

        Raises UserError if they are others than those of which something is in flight, or if ranks have different
        exchanges; waits for the ranks, the first time. In a graph the executions raise (UpdateSets.turn): TensorFlow
        makes nothing of a function whose first trace has made variables and raised, without an error.
        """
        if self.loading is not None:
            state, self.loading = self.loading, None
            self.load(state, buckets)
        fresh = not self._met
        if fresh:
            ranks, choice = self.wire.process_set.size(), self.wire.travel.choice
            self.meet("exchange", list(self.among.agreement(self.settings, ranks, choice)), self.among.AGREED)
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

    def announce(self, gradients: int) -> None:
        """One line on one rank, once in a world: what becomes of so many gradients of an update from here on."""
        if not (self._announced or self.settings.synchronous) and self.wire.process_set.rank() == 0:
            tell(
                f"exchange={self.settings} begins for {self.wire.label}: {gradients} gradients an update, "
                f"{self.wire.process_set.size()} ranks."
            )
        self.wire.travel.announce(self.wire.label)
        self._announced = True

    # Whether results of weighted gradients are divided by the weight that came.
    divides: ClassVar[bool] = False

    def weigh(self, weighted: bool) -> None:
        """Before a bucket is started: whether its gradients have weights behind them.

        Raises UsageError where results of others may be in flight.
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
        """Start to exchange `tensors` and return at once; calling the answer waits. See Wire.start."""

    def reduce(self, buckets: Sequence[Bucket], tensors: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """All of an update: the tensors of each bucket go in, the answers come out; also in a graph."""
        with nullcontext() if self.sets is None else self.sets.turn(buckets):
            results = waited(self.start, buckets, tensors)
        with self.ops.after([one for many in results for one in many]):
            self.complete()
            if self._scale is None:
                return results
            factor = self.rescaled(self._scale)
            return [[one * self.ops.cast(factor, one) for one in many] for many in results]

    def complete(self) -> Any:
        """All gradients of an update were started and answered. Whether the answers are gradients: make an update."""
        return True

    def share(self) -> None:  # noqa: B027
        """After `complete`: give all ranks the answers that one of them alone was given; all ranks must."""

    def scaled_by(self, scale: Scale) -> None:
        """The loss is scaled by what `scale` holds, in all updates from here on that `reduce` makes.

        Raises UsageError if it may not be.
        """
        if self.unscaled:
            raise UsageError(
                f"{self.wire.label} scales its loss, with an exchange that {self.unscaled}.",
                'Use bfloat16 (of Keras mixed_bfloat16), which needs no loss scaling, or exchange="sync".',
            )
        self._scale = scale

    def rescaled(self, scale: Scale) -> Any:
        """By what to multiply the answers so that they are scaled by `scale`, the factor of this update.

        Raises UsageError as `scaled_by`.
        """
        if self.unscaled:
            self.scaled_by(scale)
        return 1.0

    @property
    def answered(self) -> Any:
        """Whether the last update had answers; in a graph a tensor."""
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
        """How many updates are in flight between steps."""
        return 0

    @property
    def lag(self) -> int | None:
        """How many updates ago was handed in what is answered now; None where it is owed from any of them."""
        return 0

    @property
    def at_rest(self) -> bool:
        """Whether other gradients may take their turn: nothing was reduced yet, or all was drained."""
        return True

    def drain(self) -> list[Update]:
        """Take out what is in flight, oldest update first; all ranks must, after the same update. Not in a graph."""
        return []

    def drained_means(self, weights: Weights) -> list[Update]:
        """As `drain`, with means in place of arrays that travelled with weights, in the shapes of these weights.

        Without updates for which no rank had data.
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
        """So many updates were made with what `drain` took out."""
        self.around.drained(weights, updates)
        self.around.look_ahead(weights, 0)

    @property
    def left(self) -> int:
        """How many updates a drain would make on this rank, or make known to the others, as far as it can tell."""
        return self.around.left or self.filled

    # Whether a drain needs no other rank once all are through.
    drains_alone: ClassVar[bool] = False
    # Whether models differ between ranks until they are averaged, after a drain as well.
    models_differ: ClassVar[bool] = False

    def discard(self, answers: Mapping[str, list[Any]]) -> bool:
        """All ranks do so, and what they started counts as if they had not; `answers` to it by bucket name, if any.

        After `complete`, with no answers: those it told of are dropped. Returns whether replicas may have parted.
        """
        return False

    def real_weights(self) -> AbstractContextManager[None]:
        """A context in which weights are what the updates made of them. Not in a graph."""
        return self.around.real_weights()

    def state(self) -> dict[str, Any] | None:
        """What a run that goes on from here needs (in_flight_state.py); None if that is nothing.

        Waits for what travels, changes nothing, asks no other rank.
        """
        state = self._state()
        if state is not None and state["in_flight"] and self.weighted:
            state = {**state, WEIGHTED: True}
        return with_residuals(state, self.wire.travel.state(), self.settings.tag)

    def _state(self) -> dict[str, Any] | None:
        """As `state`, without what error feedback keeps."""
        return None

    def differs(self, state: dict[str, Any]) -> bool:
        """Whether `state`, what `state()` returned, is this rank's alone, so that no other rank can go on with it.

        What error feedback keeps differs, too, and is not asked for: without it a rank goes on as well.
        """
        return self.settings.states_differ and bool(state["in_flight"])

    def check(self, state: dict[str, Any]) -> None:
        """Raises ValueError for gradients in flight of another exchange: they would be lost."""
        if state["in_flight"] and state["k"] != self.settings.tag:
            raise ValueError(f"expected {self.settings.expected}, found {self.among.described(state['k'])}")

    def load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights = dict) -> None:
        """Go on where `state` was taken, `buckets` being those that travel from now on.

        Raises UsageError for a state of another exchange, or of gradients that are not those of whole buckets.
        """
        rest, residuals = without_residuals(state)
        if residuals is not None:
            self._state()  # waits for what travels: it would still change the residuals
        self.wire.travel.load(residuals)
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
        """As `load`, of a state that `check` accepts: nothing is in flight."""

    def forget(self) -> None:
        """Drop what is in flight and all that was agreed: the ranks failed or changed."""
        self._met, self._announced, self._drains, self.weighted = False, False, 0, None
        self.around.forget()

    def meet(self, what: str, values: list[int], meaning: str) -> None:
        """Wait for all ranks to come here with the same values. Raises UserError within a minute if they do not."""
        here = self.wire.library, self.wire.process_set.process_set_id
        agree(*here, f"paceline.{what}.{self.wire.label}", values, meaning, SAME_EXCHANGE)

    @cached_property
    def in_flight(self) -> InFlight:
        """What the library has of this process set."""
        return InFlight(self.wire.library, self.wire.process_set.process_set_id)

    # --- for subclasses -------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Bucket]:
        """The buckets that something may be in flight of, by name."""
        return {}

    @property
    def _bound(self) -> bool:
        """Whether updates must have gradients of the same variables as before."""
        return False

    @property
    def _filled_here(self) -> Any:
        """As `filled`, also within a graph: a tensor there."""
        return 0

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:  # noqa: B027
        """From here on these travel, no others. `fresh`: for the first time in this world of ranks."""


def waited(
    start: Callable[[Bucket, Sequence[Any]], Callable[[], Any]],
    buckets: Sequence[Bucket],
    tensors: Sequence[Sequence[Any]],
) -> list[list[Any]]:
    """The results of all buckets: each is started before one is waited for."""
    works = [start(bucket, many) for bucket, many in zip(buckets, tensors, strict=True)]
    return [work() for work in works]
