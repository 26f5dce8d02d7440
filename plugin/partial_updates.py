"""Partial rounds for the gradients of an optimizer of Keras or of a tape: what is common to their frameworks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.exchange import AGREED, agreement
from paceline.partial import Partial
from paceline.pipelined import InFlight
from paceline.updates_in_flight import Reduce, Results

# zeros(shape, dtype) of the framework; flush(reduce, tensors) calls reduce(tensors), compiled where names need that.
Zeros = Callable[[Any, Any], Any]
Flush = Callable[[Callable[[list[Any]], list[Any]], list[Any]], list[Any]]


class PartialUpdates:
    """The rounds of one optimizer or tape, in the place of an UpdatesInFlight: every update has an answer."""

    # What averages models (frameworks/keras/averaging.py); None: nothing does.
    help: Any = None
    answered = True
    filled_here = 0

    def __init__(
        self, partial: Partial, settings: Any, reduce: Reduce, library: Any, zeros: Zeros, flush: Flush
    ) -> None:
        """`reduce`: the synchronous one, which is also what partial operations are made with."""
        self.partial = partial
        self._settings = settings
        self._reduce = reduce
        self._zeros = zeros
        self._flush = flush
        self._meeting = InFlight(library, settings.process_set.process_set_id)
        self.places: tuple[int, ...] = ()  # of the variables that travel
        self._likes: dict[int, tuple[Any, Any]] = {}  # shape and dtype of what travels, by place
        self._groups: tuple[tuple[int, ...], ...] = ()
        self._met = False

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
            self._meeting.meet(f"paceline.exchange.{self._settings.name}", numbers, AGREED)
            self._met = True
        self.places = tuple(places)
        self._groups = tuple(map(tuple, groups))

    def reduce(
        self, grads: Sequence[Any], settings: Any, places: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> list[Any]:
        """As the wire's own, with what this rank has not been answered with yet."""
        self._likes = {place: (tuple(grad.shape), grad.dtype) for place, grad in zip(places, grads, strict=True)}
        return list(self._reduce(grads, self._marked(), places, groups))

    def when_answered(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update`."""
        update()

    def drain(self) -> list[tuple[Results, float]]:
        """One update: all that was contributed and that this rank has not been answered with. Waits for all ranks."""
        if not self._likes:
            return []
        places = list(self._likes)
        settings = self._marked(flush=True)
        found = self._flush(
            lambda tensors: list(self._reduce(tensors, settings, places, self._groups)),
            [self._zeros(shape, dtype) for shape, dtype in self._likes.values()],
        )
        return [({place: np.asarray(one) for place, one in zip(places, found, strict=True)}, 1.0)]

    def state(self) -> None:
        """Nothing is kept: flush with `drain` before saving."""
        return None

    def load(self, state: dict[str, Any], *_: Any) -> None:
        """Raises UserError for gradients in flight: they would be lost."""
        if state["in_flight"]:
            raise UserError(
                f"Gradients in flight of K = {state['k']} were given to an exchange that has none.",
                "Use the exchange that the state was saved with, or drain() before saving.",
            )

    def forget(self) -> None:
        """The ranks failed or changed."""
        if self.help is not None:
            self.help.forget()
        self._likes, self._met = {}, False

    def _marked(self, flush: bool = False) -> Any:
        ranks = self._settings.process_set.size()
        return dataclasses.replace(self._settings, mark=self.partial.mark(ranks, flush=flush))
