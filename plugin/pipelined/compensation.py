"""Compensation of staleness, around the updates of an optimizer (see paceline.pipelined.staleness)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paceline.exchange.adapter import Adapter, Cell, Weights
from paceline.exchange.around_updates import AroundUpdates
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend


class Compensation(AroundUpdates):
    """Makes updates with the rescheduled rate, and looks ahead in between; all of it can be compiled.

    Between updates a weight holds one of two things:

        real    what the updates made of it
        ahead   what it is expected to be when the gradients that are computed now are applied

    An element that somebody else wrote to while it was ahead, as loading a checkpoint does, keeps what was written.
    """

    key = "staleness"

    def __init__(self, settings: Pipelined, adapter: Adapter) -> None:
        self._settings = settings
        self._adapter = adapter
        self._gamma = retention(settings.correction, settings.delay) if settings.correction else 0.0
        self._updates = adapter.cell(0)  # with gradients that are late
        self._distance = adapter.cell(0)  # how many updates weights are ahead
        self._known: dict[int, Any] = {}
        self._trends: dict[int, Cell] = {}
        self._real: dict[int, Cell] = {}  # meaningful while ahead
        self._late: Any = False  # whether gradients of the update that is made now are

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """See AroundUpdates.update: on the real weights."""
        adapter, known = self._adapter, self._meet(weights())
        self._come_back(known)
        before = {
            index: adapter.copy(adapter.value(weight)) for index, weight in known.items() if index in self._trends
        }
        self._late = late
        try:
            with adapter.rescheduled(self.rate):
                result = step()
        finally:
            self._late = False
        self._updates.assign(self._updates.read() + adapter.where(late, 1, 0))
        for index, old in before.items():
            change = adapter.value(known[index]) - old
            self._trends[index].assign(trend(self._trends[index].read(), change, self._gamma))
        return result

    def rate(self, rate: Any) -> Any:
        """See AroundUpdates.rate."""
        steps = self._settings.anneal_steps
        if not steps or self._late is False:
            return rate
        adapter, updates = self._adapter, self._updates.read()
        progress = adapter.where(updates < steps, adapter.fraction(updates) / steps, 1.0)
        factor = adapter.where(self._late, rate_factor(self._settings.delay, progress), 1.0)
        return rate * adapter.cast(factor, rate)

    def look_ahead(self, weights: Weights, updates: Any) -> None:
        """See AroundUpdates.look_ahead: let weights be those expected after so many further updates."""
        if not self._gamma:
            return
        known = self._meet(weights())
        self._come_back(known)
        self._distance.assign(updates)
        if _certainly_none(updates):
            return
        for index, weight in known.items():
            self._real[index].assign(self._adapter.value(weight))
            self._adapter.assign(weight, self._ahead(index))

    @contextlib.contextmanager
    def real_weights(self) -> Iterator[None]:
        """See AroundUpdates.real_weights."""
        distance = int(self._distance.value())
        self.look_ahead(self._all, 0)
        try:
            yield
        finally:
            self.look_ahead(self._all, distance)

    def state(self) -> dict[str, Any]:
        """See AroundUpdates.state; weights are there where they are ahead."""
        distance = int(self._distance.value())
        return {
            "updates": int(self._updates.value()),
            "distance": distance,
            "trends": {index: delta.value() for index, delta in self._trends.items()},
            "real": {index: real.value() for index, real in self._real.items() if distance},
        }

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """See AroundUpdates.load: weights included where they were ahead."""
        self.forget()
        if state is None:
            return
        everything = weights()
        chosen = self._meet({index: everything[index] for index in state["trends"]})
        self._updates.set(state["updates"])
        for index, weight in chosen.items():
            self._trends[index].set(state["trends"][index])
            if state["distance"]:
                self._adapter.assign(weight, state["real"][index])
        self.look_ahead(lambda: chosen, state["distance"])

    def forget(self) -> None:
        """See AroundUpdates.forget: put the real weights back."""
        self.look_ahead(self._all, 0)
        self._updates.set(0)
        for delta in self._trends.values():
            delta.set(0)

    def _all(self) -> Mapping[int, Any]:
        return self._known

    def _meet(self, weights: Mapping[int, Any]) -> Mapping[int, Any]:
        for index, weight in weights.items():
            if index not in self._known and self._gamma:
                self._trends[index], self._real[index] = (self._adapter.cell_of(weight) for _ in range(2))
                self._trends[index].set(0)
            self._known[index] = weight
        return weights

    def _ahead(self, index: int) -> Any:
        real, delta = self._real[index].read(), self._trends[index].read()
        return moved(real, delta, self._adapter.cast(self._distance.read(), real))

    def _come_back(self, weights: Mapping[int, Any]) -> None:
        distance = self._distance.read()
        if not self._gamma or _certainly_none(distance):
            return
        where = self._adapter.where
        for index, weight in weights.items():
            now = self._adapter.value(weight)
            real = where(now == self._ahead(index), self._real[index].read(), now)
            self._adapter.assign(weight, where(distance > 0, real, now))


def _certainly_none(updates: Any) -> bool:
    """Whether it is known here that there are none: in a graph only the execution tells."""
    return isinstance(updates, int) and updates == 0
