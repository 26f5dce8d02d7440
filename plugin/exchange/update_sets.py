"""Sets of gradients in flight of compiled steps, where steps of different variables alternate.

Python sees a compiled step once, while the step is traced. The two steps of a GAN then alternate without Python.
Therefore each step checks and writes, in every execution, the number of its set of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paceline.exchange.ops import GraphOps
from paceline.exchange.wire import Bucket

_NONE = 0


class UpdateSets:
    """Sets of buckets that updates of one optimizer or tape consist of, numbered from 1 in the order of tracing.

    A cell holds the number of the set that was submitted last: only gradients of this set may be in flight.
    """

    def __init__(self, label: str, ops: GraphOps) -> None:
        """Construct without sets. `label`: Wire.label."""
        self._label = label
        self._ops = ops
        self._sets: list[dict[str, Bucket]] = []
        self._last = ops.cell(_NONE)

    def turn(self, buckets: Sequence[Bucket]) -> AbstractContextManager[Any]:
        """Return a context in which `buckets` may be submitted; in a graph, in every execution.

        An execution raises InvalidArgumentError there if gradients of another set are in flight.
        """
        number, last = self._number({bucket.name: bucket for bucket in buckets}), self._last.read()
        keys = [str(key) for bucket in buckets for key in bucket.members]
        checked = self._ops.require(
            (last == number) | (last == _NONE),
            f"{self._label}: expected a step of the variables whose gradients are in flight, found a compiled "
            f"step of other variables, of number {', '.join(keys)}.",
            "Call drain() on all ranks before steps of other variables, or make an optimizer for each step.",
        )
        with self._ops.after(checked):
            self._last.assign(number)
            submitted = self._last.read()
        return self._ops.after([*checked, submitted])

    @property
    def tracing(self) -> bool:
        """True while Python traces a graph."""
        return self._ops.tracing

    @property
    def last(self) -> Mapping[str, Bucket] | None:
        """Buckets that were submitted last, by name; None if none were since `clear`."""
        number = int(self._last.value())
        return None if number == _NONE else self._sets[number - 1]

    def put(self, buckets: Mapping[str, Bucket]) -> None:
        """Set `buckets` as the set in flight, from a saved state. Not in a graph."""
        self._last.set(self._number(dict(buckets)))

    def clear(self) -> None:
        """Allow any set to be submitted next: nothing is in flight. Not in a graph."""
        self._last.set(_NONE)

    def _number(self, buckets: dict[str, Bucket]) -> int:
        if buckets not in self._sets:
            self._sets.append(buckets)
        return self._sets.index(buckets) + 1
