"""Averages of models with an outer optimizer: SGD with momentum on their changes (see paceline.local.settings)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from paceline.exchange.averaging import ModelAveraging
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Key, Weights, Wire
from paceline.local.moments import Moments, Set
from paceline.local.settings import Local
from paceline.local.turns import parted, turns

Means = Callable[[], dict[int, Any]]


class OuterUpdates(ModelAveraging):
    """Apply the outer optimizer to the mean of each fragment of the model in turn; after a drain, to all fragments.

    Each set of weights that is updated separately has its own count of updates and its own work.
    """

    key = "local"

    def __init__(
        self,
        settings: Local,
        wire: Wire,
        ops: Ops,
        meet: Callable[..., None],
        members: Callable[[], set[Key]],
    ) -> None:
        """Construct the averaging of one optimizer, as ModelAveraging."""
        super().__init__(settings.sync_every, wire, ops, meet, members, "the local exchange")
        self._settings = settings
        self._turns = turns(settings.sync_every, settings.fragments, settings.delay)
        self._encoded = wire.encoding.choice.lossy
        self._begun = ops.cell(False)  # True if `_anchors` hold the initial weights
        self._anchors: dict[int, Cell] = {}  # the weights after the last average: x
        self._velocities: dict[int, Cell] = {}  # v
        self._moments = Moments(settings.moments_every, wire, ops) if settings.moments_every else None
        self._apart = ops.cell(0)  # updates since all weights were equal, where they are not after each average
        # The means in flight, with their set and fragment. Only where Python sees every update.
        self._ahead: tuple[Set, int, Means] | None = None
        self.idle = False  # True if no rank had work before the last averages, where updates have weights (PyTorch)
        self._idle_turns = 0
        self._filled_parts = 1
        self._weighs = False  # True if updates have weights
        self._work = ops.cell(0.0)  # work of the current update
        self._works: dict[Set, list[Cell]] = {}  # work since the last average, of each fragment

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step`, and make the averages that are due."""
        if self._anchored:
            known = self._meet_weights(self._wire.shared(weights(), self._members()))
            self._ops.cond(self._begun.read(), lambda: None, lambda: self._begin(known))
        return super().update(weights, step, late)

    @property
    def _anchored(self) -> bool:
        """True if the weights after the last average are kept."""
        return self._settings.outer or self._encoded

    def _updated(self, count: Any, known: Mapping[int, Any], key: Set) -> None:
        """Take the turns that are due after update `count` of a period; also in a graph."""
        if self._settings.parts_ways:
            self._apart.assign(self._apart.read() + 1)
        for cell in self._works_of(key) if self._weighs else ():
            cell.assign(cell.read() + self._work.read())
        if self._moments is not None:
            self._moments.updated(known, key, self._work.read() if self._weighs else None)
        self._work.assign(0.0)
        parts = self._parts(known)
        for turn in self._turns:
            part = parts[turn.fragment]
            if turn.start == turn.use:
                both = partial(self._average, part, key, turn.fragment)
                self._ops.cond(count == turn.use, both, lambda: None)
            elif count == turn.start:
                self._ahead = key, turn.fragment, self._start(part, key, turn.fragment, ahead=True)
            elif count == turn.use:
                self._land(part)

    def _works_of(self, key: Set) -> list[Cell]:
        if key not in self._works:
            self._works[key] = [self._ops.cell(0.0) for _ in self._turns]
        return self._works[key]

    def _parts(self, known: Mapping[int, Any]) -> list[Mapping[int, Any]]:
        """Return the weights of each fragment."""
        shared = self._wire.shared(known, self._members())
        sizes = {index: math.prod(weight.shape) for index, weight in shared.items()}
        parts = parted(sizes, self._settings.fragments)
        self._filled_parts = sum(map(bool, parts))
        return [{index: shared[index] for index in part} for part in parts]

    # --- averages -----------------------------------------------------------------------------------------------------

    def average(self, weights: Weights) -> None:
        """Average all fragments, so that all ranks have equal weights."""
        everything = weights()
        done: set[int] = set()
        for key in list(self._counts) or [None]:
            known = {
                index: weight
                for index, weight in everything.items()
                if index not in done and (key is None or index in key)
            }
            done.update(known)
            for fragment, part in enumerate(self._parts(known)):
                found = self._start(part, key, fragment)()
                if not found and self._settings.mixing:  # no rank had work, but weights differ
                    found = self._wire.start_means(part)()
                self._settle(part, found, 0.0)
        self._apart.set(0)

    def _average(self, part: Mapping[int, Any], key: Set, fragment: int) -> None:
        self._settle(part, self._start(part, key, fragment)(), self._settings.mixing)

    def _start(self, part: Mapping[int, Any], key: Set, fragment: int, ahead: bool = False) -> Means:
        values, work = None, None
        if self._encoded:
            self._meet_weights(part)
            values = {index: self._anchors[index].read() - self._wire.value(one) for index, one in part.items()}
        elif ahead:
            values = {index: self._wire.copy(self._wire.value(one)) for index, one in part.items()}
        if self._weighs:
            cell = self._works_of(key)[fragment]
            work = cell.read()
        # Another name at the end: this rank may have means in flight that others never started.
        kind = "last" if self.leaving and self._settings.delay else ""
        means = self._wire.start_means(part, values, work, self._encoded, kind)
        if self._weighs:
            cell.assign(0.0)

        def changed() -> dict[int, Any]:
            return {index: self._anchors[index].read() - change for index, change in means().items()}

        return changed if self._encoded else means

    def _land(self, part: Mapping[int, Any]) -> None:
        """Use the means in flight."""
        if self._ahead is not None:
            (_, _, means), self._ahead = self._ahead, None
            self._settle(part, means(), self._settings.mixing)

    def _settle(self, part: Mapping[int, Any], means: Mapping[int, Any], mixing: float) -> None:
        """Assign the means to the weights; `mixing` is the share of the rank's own values."""
        if self._weighs and part:
            self._idle_turns = 0 if means else self._idle_turns + 1
            self.idle = self._idle_turns >= self._filled_parts
        for index, mean in means.items():
            after = self._after(index, mean)
            if mixing:
                own = self._ops.cast(self._wire.value(part[index]), after)
                after = (1 - mixing) * after + mixing * own
            self._wire.assign(part[index], after)

    def _after(self, index: int, mean: Any) -> Any:
        """Return a weight after the step of the outer optimizer; the mean itself without an outer optimizer."""
        if index not in self._anchors:  # no outer optimizer, or a weight added after the last update
            return mean
        settings, anchor, velocity = self._settings, self._anchors[index], self._velocities.get(index)
        if velocity is None:
            anchor.assign(mean)
            return anchor.read()
        change = anchor.read() - mean
        velocity.assign(settings.outer_momentum * velocity.read() + change)
        step = change + settings.outer_momentum * velocity.read() if settings.nesterov else velocity.read()
        anchor.assign(anchor.read() - settings.outer_lr * step)
        return anchor.read()

    # --- drains -------------------------------------------------------------------------------------------------------

    def drained(self, weights: Weights, updates: int) -> None:
        """Average, if there were updates since the last average."""
        if self.left and not self.leaving:
            if self._ahead is not None:
                key, fragment, _ = self._ahead
                known = {i: one for i, one in weights().items() if key is None or i in key}
                self._land(self._parts(known)[fragment])
            self.average(weights)
            self._restart()

    @property
    def left(self) -> int:
        """Updates since the models were equal."""
        return int(self._apart.value()) if self._settings.parts_ways else self._since_average

    def worked(self, weight: Any) -> None:
        """Add the weight of gradients to the work of the update that is being made; also in a graph."""
        self._weighs = True
        self._work.assign(self._work.read() + self._ops.fraction(weight))

    # --- saved and loaded ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any] | None:
        """Return counts, anchors, velocities, work and means in flight, for which it waits; None if there are none."""
        count, begun = self.left, bool(self._begun.value())
        moments = [] if self._moments is None else [(_named(key), *numbers) for key, numbers in self._moments.numbers()]
        if not (count or begun or self._since_average or any(updates for _, updates, _ in moments)):
            return None
        state: dict[str, Any] = {
            "updates": count,
            "counts": [(_named(key), int(one.value())) for key, one in self._counts.items()],
            "begun": begun,
            "anchors": {index: cell.value() for index, cell in self._anchors.items()},
            "velocities": {index: cell.value() for index, cell in self._velocities.items()},
        }
        if self._weighs:
            works = [(_named(key), [float(one.value()) for one in many]) for key, many in self._works.items()]
            state["works"] = works
        if self._moments is not None:
            state["moments"] = moments
        if self._ahead is not None:
            key, fragment, means = self._ahead
            found = means()
            self._ahead = key, fragment, lambda: found
            state["ahead"] = (_named(key), fragment, {i: self._wire.plain(one) for i, one in found.items()})
        return state

    def load(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Restore `state`; None: start from the beginning."""
        self.forget()
        if state is None:
            return
        everything = weights()
        self._meet_weights({index: everything[index] for index in state["anchors"]})
        for key, count in state["counts"]:
            self._count(_set_of(key)).set(int(count))
        self._apart.set(int(state["updates"]))
        for key, many in state.get("works", ()):
            self._weighs = True
            for cell, work in zip(self._works_of(_set_of(key)), many, strict=True):
                cell.set(float(work))
        for key, count, work in state.get("moments", ()):
            if self._moments is not None:
                self._moments.put(_set_of(key), int(count), float(work))
        self._begun.set(state["begun"])
        for kept, cells in ((state["anchors"], self._anchors), (state["velocities"], self._velocities)):
            for index in kept:
                cells[index].set(kept[index])
        if "ahead" in state:
            key, fragment, means = state["ahead"]
            found = {int(index): self._wire.from_plain(one) for index, one in means.items()}
            self._ahead = _set_of(key), int(fragment), lambda: found

    def forget(self) -> None:
        """Reset all counts and the outer optimizer."""
        super().forget()
        for cell in (self._work, *(one for many in self._works.values() for one in many)):
            cell.set(0.0)
        self._apart.set(0)
        self._ahead = None
        if self._moments is not None:
            self._moments.forget()
        self._begun.set(False)
        if self._wire.graph_ops is None:  # weights may change their shapes
            self._anchors.clear()
            self._velocities.clear()

    def _begin(self, weights: Mapping[int, Any]) -> None:
        for index, weight in weights.items():
            self._anchors[index].assign(self._wire.value(weight))
            if index in self._velocities:
                self._velocities[index].assign(self._wire.value(weight) * 0)
        self._begun.assign(True)

    def _meet_weights(self, weights: Mapping[int, Any]) -> Mapping[int, Any]:
        for index, weight in weights.items():
            if index not in self._anchors:
                # A weight added later begins with its current value; in a graph the first execution follows at once.
                self._anchors[index] = self._wire.cell_of(weight)
                if self._settings.outer:
                    self._velocities[index] = self._wire.cell_of(weight)
                    self._velocities[index].set(0)
        return weights


def _named(key: Set) -> list[int] | None:
    """Return a set as in saved states."""
    return None if key is None else sorted(key)


def _set_of(key: Any) -> Set:
    return None if key is None else frozenset(map(int, key))
