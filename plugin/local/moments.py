"""Averages of the inner optimizer's state, such as the moments of Adam.

DES-LOC (ICLR 2026): with averages of weights alone, moments diverge and may oscillate; moments are therefore averaged
too, less often than weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Wire

# Weights that are updated separately (Wire.update_set).
Set = frozenset[int] | None


class Moments:
    """Average the moments of a set of weights over all ranks, every `every` updates of the set."""

    def __init__(self, every: int, wire: Wire, ops: Ops) -> None:
        self._every = every
        self._wire = wire
        self._ops = ops
        # Updates and work since the last average, of each set of weights that is updated separately.
        self._cells: dict[Set, tuple[Cell, Cell]] = {}

    def updated(self, known: Mapping[int, Any], key: Set, work: Any) -> None:
        """Count an update of the weights `known`, and its work if updates have weights; average if that is due."""
        count, worked = self._of(key)
        updates = count.read() + 1
        count.assign(self._ops.where(updates >= self._every, 0, updates))
        if work is not None:
            worked.assign(worked.read() + work)
        average = partial(self._average, known, None if work is None else worked)
        self._ops.cond(updates >= self._every, average, lambda: None)

    def _of(self, key: Set) -> tuple[Cell, Cell]:
        if key not in self._cells:
            self._cells[key] = self._ops.cell(0), self._ops.cell(0.0)
        return self._cells[key]

    def _average(self, known: Mapping[int, Any], worked: Cell | None) -> None:
        wire, work = self._wire, None if worked is None else worked.read()
        found = wire.moments(known)
        started = {
            kind: wire.start_means(
                {index: known[index] for index in many},
                {index: wire.copy(wire.value(one)) for index, one in many.items()},
                work,
                kind=kind,
            )
            for kind, many in found.items()
        }
        for kind, means in started.items():
            for index, mean in means().items():
                wire.assign(found[kind][index], mean)
        if worked is not None:
            worked.assign(0.0)

    def numbers(self) -> Iterator[tuple[Set, tuple[int, float]]]:
        """Yield updates and work since the last average of each set."""
        for key, (count, worked) in self._cells.items():
            yield key, (int(count.value()), float(worked.value()))

    def put(self, key: Set, count: int, work: float) -> None:
        """Restore what `numbers` yielded."""
        cells = self._of(key)
        cells[0].set(count)
        cells[1].set(work)

    def forget(self) -> None:
        """Reset all counts."""
        for key in self._cells:
            self.put(key, 0, 0.0)
