"""What graph operations come to where Python sees every step: it holds numbers and decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paceline.exchange.ops import Cell


class PythonCell:
    """A cell that is a Python value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self) -> Any:
        """See Cell.read."""
        return self._value

    def assign(self, value: Any) -> None:
        """See Cell.assign."""
        self._value = value

    value = read
    set = assign


class EagerOps:
    """See Ops."""

    def cell(self, value: Any) -> Cell:
        """See Ops.cell."""
        return PythonCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """See Ops.cond."""
        return then() if predicate else otherwise()

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """See Ops.where."""
        return one if predicate else other

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """See Ops.after: they are."""
        return contextlib.nullcontext()

    def fraction(self, number: Any) -> float:
        """See Ops.fraction."""
        return float(number)

    def cast(self, number: Any, like: Any) -> Any:
        """See Ops.cast: as it is."""
        return number

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """See Ops.shifted."""
        return [*numbers[1:], newest]

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """See Ops.without_zeros."""
        return [one or value for one in numbers]

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """See Ops.in_graph: operations that run eagerly keep their names."""
        return function(tensors)
