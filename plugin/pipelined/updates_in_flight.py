"""Pipelined gradients of an optimizer of Keras or of a tape of TensorFlow: what is common to their frameworks.

PyTorch optimizers have an exchange of their own (frameworks/torch/pipelined/exchange.py).
"""

from __future__ import annotations

import ctypes
import dataclasses
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.exchange.agreement import AGREED, agreement
from paceline.exchange.channel_owners import ChannelOwner
from paceline.exchange.own_names import own_name
from paceline.native.exchanges import PIPELINED
from paceline.pipelined.settings import InFlight, Pipelined

# One update: results by the variable's place in the optimizer's (or tape's) list.
Results = dict[int, np.ndarray[Any, Any]]
# reduce(grads, settings, places, groups) of the wire: gradients of positions in `groups` travel as one message each.
Reduce = Callable[[Sequence[Any], Any, Sequence[int], Sequence[Sequence[int]]], list[Any]]

# Where a state has that of `help`.
STALENESS = "staleness"

# What Horovod puts before a name, for a single tensor and for one of a group.
_PREFIXES = {"tensorflow": ("", ""), "torch": ("allreduce.", "grouped_allreduce.")}

# Those to be told of a new world: each has a `library` and can `forget`.
_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_worlds(updates: Any) -> None:
    """Have `updates.forget()` called when the ranks of `updates.library` begin anew."""
    _alive.add(updates)


def new_world(library: ctypes.CDLL) -> None:
    """The ranks of `library` begin anew: nothing is in flight any more."""
    for updates in list(_alive):
        if updates.library._handle == library._handle:
            updates.forget()


def own_settings(settings: Any, library: ctypes.CDLL, exchange: str) -> Any:
    """`settings` under a name that no other exchange of this process has, and nobody without one: it has its word."""
    name = own_name(library, settings.process_set.process_set_id, settings.name) + f".{exchange}"
    # A pipeline must not keep alive what it is made for.
    return dataclasses.replace(settings, name=name, groups=None, exchange=None)


def label(settings: Any, exchange: str) -> str:
    """What ranks compare under, the same on all of them whatever their exchange: the own name without its word."""
    return str(settings.name).removesuffix(f".{exchange}")


def full_names(
    settings: Any, library_name: str, places: Sequence[int], groups: Sequence[Sequence[int]]
) -> dict[int, str]:
    """Place -> the full name of its operation; `groups` has the positions of `places` that travel together."""
    single, grouped = _PREFIXES[library_name]
    names = {}
    for group in groups:
        members = [places[position] for position in group]
        if len(members) == 1:
            names[members[0]] = single + settings.operation("HorovodAllreduce", members[0])
            continue
        for number, place in enumerate(members, 1):
            operation = settings.operation("HorovodAllreduceGroup", members[0])
            names[place] = f"{grouped}{operation}_{number}of{len(members)}"
    return names


class UpdatesInFlight(ABC):
    """The pipeline of one optimizer or tape: which updates have an answer, and what is in flight.

    The first `warmup_steps` updates are synchronous, the K - 1 after them (and after every `drain`) have no answer: the
    update is left out. Three numbers say where a pipeline stands; they live in the framework (`_get`, `_set`):

        warm   synchronous updates still to come
        skip   updates without an answer still to come, after those; K - 1 - skip updates are in flight
        scales the factors (of loss scaling) of the K - 1 last updates, oldest first
    """

    def __init__(self, pipelined: Pipelined, settings: Any, library_name: str, library: ctypes.CDLL) -> None:
        self.pipelined = pipelined
        self.library = library
        # A variable that holds the factor of loss scaling, where there is one.
        self.scale: Any = None
        # What is done about the age of gradients (frameworks/keras/pipelined/compensation.py); None: nothing.
        self.help: Any = None
        # A saved state to go on from, once it is known which variables travel.
        self.loading: dict[str, Any] | None = None
        self._settings = own_settings(settings, library, PIPELINED)
        # What was compiled with this pipeline in it, for eager execution; its wire fills and reads it.
        self.functions: dict[Any, Any] = {}
        self._library_name = library_name
        self._in_flight = InFlight(library, settings.process_set.process_set_id)
        self._owner = ChannelOwner(self._in_flight, (PIPELINED, pipelined.k, pipelined.warmup_steps))
        self._places: tuple[int, ...] = ()
        self._channels: dict[int, str] = {}
        self._drains = 0
        self._drained = False  # and not begun since
        watch_worlds(self)

    @property
    def settings(self) -> Any:
        """Those that gradients are reduced with: the optimizer's, under a name of its own, without groups."""
        return self._settings

    def begin(self, places: Sequence[int], groups: Sequence[Sequence[int]]) -> None:
        """Before gradients of the variables at `places` are reduced, or that is put into a graph.

        Raises UserError if the variables are others than those in flight, or if ranks have different exchanges.
        """
        if self.loading is not None:
            state, self.loading = self.loading, None
            self.load(state, groups)
        channels = full_names(self._settings, self._library_name, places, groups)
        self._drained = False
        if channels == self._channels:
            return
        if self._channels and self.filled:
            raise UserError(
                f"{self._settings.name}: {len(places)} variables have gradients, {len(self._places)} had them in the "
                "update that is in flight.",
                "Give every update gradients of the same variables in the same groups, or drain() on all ranks first.",
            )
        if not self._channels:
            self._meet("exchange", list(agreement(self.pipelined, self._settings.process_set.size())), AGREED)
        self._owner.claim(channels.values(), self._settings.name, refuse=False)
        for name in channels.values():
            self._in_flight.sync_next(name, int(self._get("warm")))
        self._places, self._channels = tuple(places), channels

    @property
    def filled(self) -> int:
        """How many updates are in flight."""
        return self.pipelined.k - 1 - int(self._get("skip"))

    @property
    def at_rest(self) -> bool:
        """Whether other variables may take their turn: nothing was reduced yet, or all was drained."""
        return not self.filled and (self._drained or not self._channels)

    @property
    def filled_here(self) -> Any:
        """As `filled`, also within a graph: a tensor there."""
        return self.filled

    def drain(self) -> list[tuple[Results, float]]:
        """Wait for the updates in flight and take them out, oldest first, each with its factor of loss scaling.

        All ranks must do so after the same update. Raises UserError if they do not within a minute, RuntimeError
        with the reason if what travels does not arrive.
        """
        self._meet("drain", [self._drains, self.filled], "drains before and updates in flight")
        self._drains += 1
        taken = self._taken()
        for name in self._channels.values():
            self._in_flight.clear(name)
        self._set("skip", self.pipelined.k - 1)
        self._drained = True
        return taken

    def state(self) -> dict[str, Any] | None:
        """What a run that goes on from here needs; None if nothing is in flight and no warm-up was begun.

        Waits for what travels, changes nothing, asks no other rank.
        """
        warm = int(self._get("warm"))
        if not self.filled and warm == self.pipelined.warmup_steps and self.help is None:
            return None
        state = {"k": self.pipelined.k, "warm": warm, "in_flight": self._taken()}
        return state if self.help is None else {**state, STALENESS: self.help.state()}

    def load(
        self, state: dict[str, Any], groups: Sequence[Sequence[int]], variables: Mapping[int, Any] | None = None
    ) -> None:
        """Go on where `state` was taken; `groups` has the positions that travel together, `variables` all by place.

        Raises UserError for another K.
        """
        if state["k"] != self.pipelined.k:
            raise UserError(
                f"Gradients in flight were saved with K = {state['k']}, this optimizer has K = {self.pipelined.k}.",
                "Use the exchange that the state was saved with, or drain() before saving.",
            )
        self.forget()
        self._set("warm", state["warm"])
        in_flight = state["in_flight"]
        if in_flight:
            places = sorted(in_flight[0][0])
            self.begin(places, groups)
            for results, _ in in_flight:
                for place, value in results.items():
                    self._in_flight.put_array(self._channels[place], value)
        self._set("skip", self.pipelined.k - 1 - len(in_flight))
        scales = [1.0] * (self.pipelined.k - 1 - len(in_flight)) + [scale for _, scale in in_flight]
        self._set("scales", scales)
        if self.help is not None:
            self.help.load(state.get(STALENESS), variables or {})

    def forget(self) -> None:
        """Drop what is in flight: the ranks failed or changed."""
        if self.help is not None:
            self.help.forget()
        # Compiled steps go on under the same names, without Python between.
        self._owner.empty()
        self._places, self._channels, self._drains, self._drained = (), {}, 0, False
        self._set("warm", self.pipelined.warmup_steps)
        self._set("skip", self.pipelined.k - 1)
        self._set("scales", [1.0] * (self.pipelined.k - 1))

    # What the framework has.

    @abstractmethod
    def reduce(
        self, grads: Sequence[Any], settings: Any, places: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> list[Any]:
        """As the wire's own, with the answers that the pipeline has; zeros where it has none.

        `settings`: those of this pipeline, which has a name of its own.
        """

    @abstractmethod
    def when_answered(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update` if the last `reduce` had answers, else `otherwise`."""

    @abstractmethod
    def _get(self, name: str) -> Any:
        """One of warm, skip and scales."""

    @abstractmethod
    def _set(self, name: str, value: Any) -> None:
        """Give one of them another value."""

    def _taken(self) -> list[tuple[Results, float]]:
        filled = self.filled
        scales = list(self._get("scales"))[self.pipelined.k - 1 - filled :]
        updates: list[tuple[Results, float]] = [({}, float(scale)) for scale in scales]
        for place, name in self._channels.items():
            if filled:
                self._in_flight.settle(name)
            for age, (results, _) in enumerate(updates):
                results[place] = self._in_flight.array(name, age)
        return updates

    def _meet(self, what: str, values: list[int], meaning: str) -> None:
        self._in_flight.meet(f"paceline.{what}.{label(self._settings, PIPELINED)}", values, meaning)
