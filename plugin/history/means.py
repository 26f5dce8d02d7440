"""Observation of averages of models."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from paceline.exchange.base import Exchange
from paceline.history.methods import weakly
from paceline.history.records import Averaged, Put
from paceline.history.sums import array_of, sums_of


class Means:
    """Writes what one exchange submits to averages, and their results."""

    def __init__(self, exchange: Exchange) -> None:
        wire: Any = exchange.wire
        self._wire: Any = weakref.proxy(wire)
        # Weights become the mean itself, which all ranks have.
        self._assigned = not getattr(exchange.settings, "mixing", 0.0)
        self._equal: set[int] = set()
        self._numbers: Counter[str] = Counter()
        wire.start_means = partial(self._start, weakly(wire, "start_means"))

    def begin(self, x: int, write: Callable[[Any], None]) -> None:
        """Begin a world, in which the exchange has the number `x`."""
        self._x, self._write = x, write
        self._numbers.clear()

    @property
    def number(self) -> int:
        """Number of averages of weights so far."""
        return sum(self._numbers.values())

    def take_equal(self) -> set[int]:
        """Return the indices of the weights that were averaged since the last call, and are equal on all ranks."""
        taken, self._equal = self._equal, set()
        return taken if self._assigned else set()

    def _start(
        self,
        inner: Callable[..., Callable[[], dict[int, Any]]],
        weights: Mapping[int, Any],
        values: Mapping[int, Any] | None = None,
        work: Any = None,
        encoded: bool = False,
        kind: str = "",
    ) -> Callable[[], dict[int, Any]]:
        held = {index: self._wire.value(one) if values is None else values[index] for index, one in weights.items()}
        dtypes = [self._wire.like(one)[1] for one in held.values()]
        number = self._submit(held, dtypes, work, encoded, kind)
        means = inner(weights, values, work, encoded, kind)

        def received() -> dict[int, Any]:
            found = means()
            self._receive(found, number, kind)
            return found

        return received

    def _submit(self, held: Mapping[int, Any], dtypes: Sequence[str], work: Any, encoded: bool, kind: str) -> int:
        """Write what is submitted, and return the number of the average."""
        self._numbers[kind] += 1
        number = self._numbers[kind]
        share = None if work is None else float(work)
        for (index, one), dtype in zip(held.items(), dtypes, strict=True):
            self._write(Put(self._x, number, str(index), sums_of(array_of(one)), dtype, share, kind, not encoded))
        return number

    def _receive(self, found: Mapping[int, Any], number: int, kind: str) -> None:
        """Write the means."""
        for index, mean in found.items():
            self._write(Averaged(self._x, number, str(index), sums_of(array_of(mean)), kind))
            if kind in ("", "last"):
                self._equal.add(index)
