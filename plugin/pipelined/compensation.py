"""Compensation of staleness around the updates of an optimizer (see paceline.pipelined.staleness)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paceline.exchange.around_updates import AroundUpdates
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Weights, Wire
from paceline.pipelined.settings import OWN, Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend


class Compensation(AroundUpdates):
    """Make updates with the rescheduled rate, and look ahead in between; all of it can be compiled.

    Between updates a weight holds one of two values:

        real    the result of the updates
        ahead   the value expected when the gradients computed now are applied: moved by the trend of its changes, or by
                the change that an update with this rank's gradient in flight would make

    Each weight has its own distance, the number of updates that it is ahead: compiled steps of some weights leave the
    other weights unchanged, and a frozen weight stays real. If other code writes to an element while it is ahead, as
    loading a checkpoint does, the element keeps the written value.
    """

    key = "staleness"

    def __init__(self, settings: Pipelined, wire: Wire, ops: Ops) -> None:
        self._settings = settings
        self._wire = wire
        self._ops = ops
        self._gamma = retention(settings.correction, settings.delay) if settings.correction else 0.0
        self._trial = wire.trial() if settings.compensation == OWN else None
        self._moves = self._gamma > 0 or self._trial is not None
        self._updates = ops.cell(0)  # number of updates with late gradients
        self._known: dict[int, Any] = {}
        self._trends: dict[int, Cell] = {}
        self._distances: dict[int, Cell] = {}
        self._real: dict[int, Cell] = {}  # meaningful while ahead
        self._late: Any = False  # True if gradients of the current update are late

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step` on the real weights, with the rescheduled rate, and update the trends."""
        wire, ops, known = self._wire, self._ops, self._meet(weights())
        self._come_back(known)
        trended = known if self._gamma else {}
        before = {index: wire.copy(wire.value(weight)) for index, weight in trended.items()}
        self._late = late
        try:
            with wire.rescheduled(self.rate):
                result = step()
        finally:
            self._late = False
        with ops.after([wire.value(weight) for weight in known.values()]):  # a step that raises does not count
            self._updates.assign(self._updates.read() + ops.where(late, 1, 0))
        for index, old in before.items():
            change = wire.value(known[index]) - old
            self._trends[index].assign(trend(self._trends[index].read(), change, self._gamma))
        return result

    def rate(self, rate: Any) -> Any:
        """Return the annealed learning rate (PipeMare's T1)."""
        steps = self._settings.annealing_steps
        if not steps or self._late is False:
            return rate
        ops, updates = self._ops, self._updates.read()
        progress = ops.where(updates < steps, ops.fraction(updates) / steps, 1.0)
        factor = ops.where(self._late, rate_factor(self._settings.delay, progress), 1.0)
        return rate * ops.cast(factor, rate)

    def scaled(self, scale: Any) -> None:
        """Note the factor of the loss, by which the gradients of a trial step are divided."""
        if self._trial is not None:
            self._trial.scale = float(scale)

    def look_ahead(self, weights: Weights, updates: Any) -> None:
        """Move weights to the values expected after this many further updates."""
        if not self._moves:
            return
        known = self._meet(weights())
        self._come_back(known)
        if not _certainly_none(updates):
            if self._trial is not None:
                changes = self._trial.changes()
                for index in known:
                    self._trends[index].assign(changes.get(index, 0.0))
            self._move({index: one for index, one in known.items() if self._wire.trains(one)}, updates)

    @contextlib.contextmanager
    def real_weights(self) -> Iterator[None]:
        """Return a context in which all weights are real."""
        ahead = self._weights_ahead()
        self.look_ahead(lambda: self._known, 0)
        try:
            yield
        finally:
            for index, distance in ahead.items():
                self._move({index: self._known[index]}, distance)

    def state(self) -> dict[str, Any]:
        """Return counts and trends, and the real values of weights that are ahead."""
        ahead = self._weights_ahead()
        return {
            "updates": int(self._updates.value()),
            "distance": max(ahead.values(), default=0),  # of all weights in "real"
            "trends": {index: delta.value() for index, delta in self._trends.items()},
            "real": {index: self._real[index].value() for index in ahead},
        }

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Restore `state`, including the values of weights that were ahead."""
        self.forget()
        if state is None:
            return
        everything = weights()
        chosen = self._meet({index: everything[index] for index in state["trends"]})
        self._updates.set(state["updates"])
        for index, weight in chosen.items():
            self._trends[index].set(state["trends"][index])
            if index in state["real"]:
                self._wire.assign(weight, state["real"][index])
        self._move({index: chosen[index] for index in state["real"]}, state["distance"])

    def forget(self) -> None:
        """Restore the real weights, and reset counts and trends."""
        self.look_ahead(lambda: self._known, 0)
        self._updates.set(0)
        for delta in self._trends.values():
            delta.set(0)

    def _weights_ahead(self) -> dict[int, int]:
        """Return the distances of the weights that are ahead now, by index. Not in a graph."""
        found = {index: int(distance.value()) for index, distance in self._distances.items()}
        return {index: distance for index, distance in found.items() if distance}

    def _meet(self, weights: Mapping[int, Any]) -> Mapping[int, Any]:
        for index, weight in weights.items():
            if index not in self._known and self._moves:
                self._trends[index], self._real[index] = (self._wire.cell_of(weight) for _ in range(2))
                self._trends[index].set(0)
                self._distances[index] = self._ops.cell(0)
            self._known[index] = weight
        return weights

    def _move(self, weights: Mapping[int, Any], distance: Any) -> None:
        """Move `weights`, which are real, ahead."""
        for index, weight in weights.items():
            self._real[index].assign(self._wire.value(weight))
            self._distances[index].assign(distance)
            self._wire.assign(weight, self._ahead(index))

    def _ahead(self, index: int) -> Any:
        real, delta = self._real[index].read(), self._trends[index].read()
        return moved(real, delta, self._ops.cast(self._distances[index].read(), real))

    def _come_back(self, weights: Mapping[int, Any]) -> None:
        if not self._moves:
            return
        for index, weight in weights.items():
            distance = self._distances[index].read()
            if _certainly_none(distance):
                continue
            now = self._wire.value(weight)
            real = self._wire.where(now == self._ahead(index), self._real[index].read(), now)
            self._wire.assign(weight, self._ops.where(distance > 0, real, now))
            # Reset, because an update may give the weight the very value that it had ahead.
            self._distances[index].assign(0)


def _certainly_none(updates: Any) -> bool:
    """Return True if `updates` is known to be 0; in a graph only the execution knows."""
    return isinstance(updates, int) and updates == 0
