"""Averages of models with an outer optimizer: SGD with momentum on what they change (see paceline.local.settings)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.exchange.averaging import ModelAveraging
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Key, Weights, Wire
from paceline.local.settings import Local


class OuterUpdates(ModelAveraging):
    """After every H updates, and after a drain, models become what the outer optimizer makes of their mean."""

    key = "local"

    def __init__(
        self,
        settings: Local,
        wire: Wire,
        ops: Ops,
        meet: Callable[[str, list[int], str], None],
        members: Callable[[], set[Key]],
    ) -> None:
        """See ModelAveraging."""
        super().__init__(settings.sync_every, wire, ops, meet, members, "the local exchange")
        self._settings = settings
        self._begun = ops.cell(False)  # whether `_anchors` hold what all ranks began with
        self._anchors: dict[int, Cell] = {}  # the weights after the last average: x
        self._velocities: dict[int, Cell] = {}  # v
        self.idle = False  # whether no rank had worked before the last average, where updates have weights (PyTorch)
        self._weighs = False  # whether updates have weights
        self._work = ops.cell(0.0)  # that of the updates since the last average

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """See AroundUpdates.update."""
        if self._settings.outer:
            known = self._meet_weights(self._wire.shared(weights(), self._members()))
            self._ops.cond(self._begun.read(), lambda: None, lambda: self._begin(known))
        return super().update(weights, step, late)

    def drained(self, weights: Weights, updates: int) -> None:
        """See AroundUpdates.drained: an average, if there were updates since the last one."""
        if self.left and not self.leaving:
            self.average(weights)
            self._restart()

    @property
    def left(self) -> int:
        """See AroundUpdates.left: those since the last average."""
        return self._since_average

    def worked(self, weight: Any) -> None:
        """Add the weight of an update to the work since the last average; also in a graph."""
        self._weighs = True
        self._work.assign(self._work.read() + self._ops.fraction(weight))

    def _means(self, shared: Mapping[int, Any]) -> dict[int, Any]:
        if not self._weighs:
            return self._wire.means(shared)
        found = self._wire.means(shared, self._work.read())
        self._work.assign(0.0)
        self.idle = not found
        return found

    def settle(self, index: int, weight: Any, mean: Any) -> None:
        """See ModelAveraging.settle."""
        if not self._settings.outer or index not in self._anchors:  # one that came after the last update
            super().settle(index, weight, mean)
            return
        settings, anchor, velocity = self._settings, self._anchors[index], self._velocities[index]
        change = anchor.read() - mean
        velocity.assign(settings.outer_momentum * velocity.read() + change)
        step = change + settings.outer_momentum * velocity.read() if settings.nesterov else velocity.read()
        anchor.assign(anchor.read() - settings.outer_lr * step)
        self._wire.assign(weight, anchor.read())

    def state(self) -> dict[str, Any] | None:
        """See AroundUpdates.state."""
        count, begun = self._since_average, bool(self._begun.value())
        if not count and not begun:
            return None
        return {
            "updates": count,
            "work": float(self._work.value()) if self._weighs else None,
            "counts": [(None if key is None else sorted(key), int(one.value())) for key, one in self._counts.items()],
            "begun": begun,
            "anchors": {index: cell.value() for index, cell in self._anchors.items()},
            "velocities": {index: cell.value() for index, cell in self._velocities.items()},
        }

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """See AroundUpdates.load."""
        self.forget()
        if state is None:
            return
        everything = weights()
        self._meet_weights({index: everything[index] for index in state["anchors"]})
        for key, count in state.get("counts", [(None, state["updates"])]):
            self._count(None if key is None else frozenset(map(int, key))).set(int(count))
        if (work := state.get("work")) is not None:
            self._weighs = True
            self._work.set(work)
        self._begun.set(state["begun"])
        for index in state["anchors"]:
            self._anchors[index].set(state["anchors"][index])
            self._velocities[index].set(state["velocities"][index])

    def forget(self) -> None:
        """See AroundUpdates.forget: the outer optimizer begins anew."""
        super().forget()
        self._work.set(0.0)
        self._begun.set(False)
        if self._wire.graph_ops is None:  # weights may have other shapes from here on
            self._anchors.clear()
            self._velocities.clear()

    def _begin(self, weights: Mapping[int, Any]) -> None:
        for index, weight in weights.items():
            self._anchors[index].assign(self._wire.value(weight))
            self._velocities[index].assign(self._wire.value(weight) * 0)
        self._begun.assign(True)

    def _meet_weights(self, weights: Mapping[int, Any]) -> Mapping[int, Any]:
        for index, weight in weights.items():
            if index not in self._anchors:
                # One that comes later begins with what it is now; in a graph the first execution follows at once.
                self._anchors[index], self._velocities[index] = (self._wire.cell_of(weight) for _ in range(2))
                self._velocities[index].set(0)
        return weights
