"""Partial rounds for the gradients of an optimizer of Keras or of a tape: what is common to their frameworks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.exchange.agreement import AGREED, agreement
from paceline.exchange.channel_owners import ChannelOwner
from paceline.native.exchanges import PARTIAL
from paceline.native.library import loaded
from paceline.partial.settings import UPDATES, Partial
from paceline.partial.state import PARTIAL_K, PartialBuffers, SavedRounds
from paceline.pipelined.settings import InFlight, described
from paceline.pipelined.updates_in_flight import Reduce, Results, full_names, label, own_settings, watch_worlds

# zeros(shape, name of a type) of the framework; flush(reduce, tensors) calls reduce(tensors), compiled where names need
# that.
Zeros = Callable[[Any, str], Any]
Flush = Callable[[Callable[[list[Any]], list[Any]], list[Any]], list[Any]]


class PartialUpdates:
    """The rounds of one optimizer or tape, in the place of an UpdatesInFlight: every update has an answer."""

    # What averages models (frameworks/keras/local/averaging.py); None: nothing does.
    help: Any = None
    answered = True
    filled_here = 0

    def __init__(
        self, partial: Partial, settings: Any, reduce: Reduce, library_name: str, zeros: Zeros, flush: Flush
    ) -> None:
        """`reduce`: the synchronous one, which is also what partial operations are made with."""
        self.partial = partial
        self.library = loaded(library_name)
        self._settings = own_settings(settings, self.library, PARTIAL)
        # What was compiled with these rounds in it, for eager execution; their wire fills and reads it.
        self.functions: dict[Any, Any] = {}
        self._reduce = reduce
        self._zeros = zeros
        self._flush = flush
        self._library_name = library_name
        self._meeting = InFlight(self.library, settings.process_set.process_set_id)
        self._buffers = PartialBuffers(self.library, settings.process_set.process_set_id)
        # A saved state to go on from, once it is known which variables travel.
        self.loading: dict[str, Any] | None = None
        self.places: tuple[int, ...] = ()  # of the variables that travel
        self._likes: dict[int, tuple[Any, str]] = {}  # shape and type of gradients, by place
        self._groups: tuple[tuple[int, ...], ...] = ()
        self._drained: dict[str, int] = {}  # rounds of each name when it was drained
        self._owner: ChannelOwner | None = None
        self._claimed: set[str] = set()  # in this world
        self._met = False
        self._loaded = False  # a state to go on from, with which no call was made yet
        self._settled = False  # drained, and nothing since
        watch_worlds(self)

    @property
    def settings(self) -> Any:
        """Those that gradients are reduced with: the optimizer's, under a name of its own, without groups."""
        return self._settings

    @property
    def scale(self) -> None:
        """Nothing is scaled."""
        return None

    @scale.setter
    def scale(self, factor: Any) -> None:
        """Refuses loss scaling: gradients that come late were scaled by what it was then."""
        raise UserError(
            f"The optimizer {self._settings.name!r} scales its loss, with an exchange that does not wait for late "
            "gradients.",
            "Use mixed_bfloat16, which needs no loss scaling, or exchange='sync'.",
        )

    def begin(self, places: Sequence[int], groups: Sequence[Sequence[int]]) -> None:
        """Before gradients are reduced, or that is put into a graph. Raises UserError if ranks differ."""
        if not self._met:
            numbers = list(agreement(self.partial, self._settings.process_set.size()))
            self._meeting.meet(f"paceline.exchange.{label(self._settings, PARTIAL)}", numbers, AGREED)
            self._met = True
        if self.loading is not None:
            state, self.loading = self.loading, None
            self.load(state, groups)
        if self.places and self.places != tuple(places) and not self._settled:
            raise UserError(
                f"{self._settings.name}: {len(places)} variables have gradients, {len(self.places)} had them in the "
                "rounds before.",
                "Give every update gradients of the same variables, or drain() on all ranks first.",
            )
        self._register(places, groups)
        self.places, self._settled = tuple(places), False
        self._groups = tuple(map(tuple, groups))

    @property
    def at_rest(self) -> bool:
        """Whether other variables may take their turn: nothing was reduced yet, or all was drained."""
        return self._settled or not self.places

    def reduce(
        self, grads: Sequence[Any], settings: Any, places: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> list[Any]:
        """As the wire's own, with what this rank has not been answered with yet."""
        self._likes = {
            place: (tuple(grad.shape), _type_name(grad.dtype)) for place, grad in zip(places, grads, strict=True)
        }
        return list(self._reduce(grads, self._settings, places, groups))

    def when_answered(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update`."""
        update()

    def drain(self) -> list[tuple[Results, float]]:
        """One update: all that was contributed and that this rank has not been answered with. Waits for all ranks."""
        if not self._loaded and not self._called():
            return []
        if self.help is not None:  # ranks with unequally many updates would wait for ever
            self._meeting.meet(f"paceline.average.{self._settings.name}", [self.help.updates()], UPDATES)
        places = list(self._likes)
        for name in self._names().values():
            self._meeting.flush_next(name)
        found = self._flush(
            lambda tensors: list(self._reduce(tensors, self._settings, places, self._groups)),
            [self._zeros(shape, dtype) for shape, dtype in self._likes.values()],
        )
        self._loaded, self._settled = False, True
        self._drained = {name: self._buffers.save(name).rounds for name in self._names().values()}
        return [({place: np.asarray(one) for place, one in zip(places, found, strict=True)}, 1.0)]

    def state(self) -> dict[str, Any] | None:
        """This rank's send buffers, and the results it has not been given; None after `drain`. Asks no other rank.

        To go on from, every rank saves its own where all have made the same calls, between two barriers.
        """
        if not self._called():
            return None
        names = self._names()
        saved = {place: self._buffers.save(name) for place, name in names.items()}
        if self._drained == {names[place]: one.rounds for place, one in saved.items()}:
            return None
        process_set = self._settings.process_set
        whose = {"rank": int(process_set.rank()), "ranks": int(process_set.size())}
        return {"k": PARTIAL_K, **whose, "in_flight": [({place: one.plain() for place, one in saved.items()}, 1.0)]}

    def load(self, state: dict[str, Any], groups: Sequence[Sequence[int]], *_: Any) -> None:
        """Go on where `state` was taken; all ranks must, each with its own. `groups`: positions that travel together.

        Raises UserError for gradients in flight of another exchange, and if the states of the ranks do not fit together
        or are not their own.
        """
        if not state["in_flight"]:
            return
        if state["k"] != PARTIAL_K:
            raise UserError(
                f"Expected no gradients in flight, found {described(state['k'])}.",
                "Use the exchange that the state was saved with, or drain() before saving.",
            )
        ((results, _),) = state["in_flight"]
        saved = {place: SavedRounds.of(one) for place, one in results.items()}
        process_set = self._settings.process_set
        here = (int(process_set.rank()), int(process_set.size()))
        places = sorted(saved)
        names = self._register(places, groups)
        self._buffers.restore({names[place]: saved[place] for place in places}, (state["rank"], state["ranks"]) != here)
        self.places, self._groups = tuple(places), tuple(map(tuple, groups))
        self._loaded, self._drained = True, {}
        self._likes = {place: (saved[place].send.shape, saved[place].send.dtype.name) for place in places}

    def forget(self) -> None:
        """The ranks failed or changed; compiled steps go on with the same variables."""
        if self.help is not None:
            self.help.forget()
        self._met, self._loaded, self._drained = False, False, {}
        self._claimed.clear()

    def _called(self) -> bool:
        """Whether there were calls in this world."""
        names = self._names()
        return bool(names) and all(map(self._buffers.called, names.values()))

    def _names(self) -> dict[int, str]:
        """Place -> the full name of its operation."""
        return full_names(self._settings, self._library_name, list(self._likes), self._groups) if self._likes else {}

    def _register(self, places: Sequence[int], groups: Sequence[Sequence[int]]) -> dict[int, str]:
        """Place -> the full name of its operation, which belongs to this exchange from here on."""
        names = full_names(self._settings, self._library_name, places, groups)
        if not self._claimed.issuperset(names.values()):
            if self._owner is None:
                registration = self.partial.registration(self._settings.process_set.size())
                # Rounds go on under a name whoever makes the calls: nothing is dropped with it.
                self._owner = ChannelOwner(self._meeting, registration, lambda name, limit_s: True)
            self._owner.claim(names.values(), self._settings.name, refuse=False)
            self._claimed.update(names.values())
        return names


def _type_name(dtype: Any) -> str:
    """As NumPy calls it."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")
