"""What adapters of frameworks that run eagerly share: Python holds numbers and decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paceline.errors import UserError
from paceline.exchange.adapter import Cell


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


class EagerNumbers:
    """The numbers and decisions of an Adapter."""

    compiled = False
    tracing = False

    def cell(self, value: Any) -> Cell:
        """See Adapter.cell."""
        return PythonCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """See Adapter.cond."""
        return then() if predicate else otherwise()

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """See Adapter.require."""
        if not condition:
            raise UserError(problem, remedy)
        return []

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """See Adapter.after: they are."""
        return contextlib.nullcontext()

    def fraction(self, number: Any) -> float:
        """See Adapter.fraction."""
        return float(number)

    def cast(self, number: Any, like: Any) -> Any:
        """See Adapter.cast: as it is."""
        return number

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """See Adapter.shifted."""
        return [*numbers[1:], newest]

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """See Adapter.without_zeros."""
        return [one or value for one in numbers]

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """See Adapter.in_graph: operations that run eagerly keep their names."""
        return function(tensors)

    def rescheduled(self, rate: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """See Adapter.rescheduled: the optimizer asks."""
        return contextlib.nullcontext()
