"""Operations of an exchange where Python sees every step: plain numbers and decisions."""

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
        """Return the value."""
        return self._value

    def assign(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    value = read
    set = assign


class EagerOps:
    """`Ops` on plain Python values."""

    def cell(self, value: Any) -> Cell:
        """Return a cell with this value."""
        return PythonCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Call one of two functions."""
        return then() if predicate else otherwise()

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Return one of two values."""
        return one if predicate else other

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return an empty context: `results` are ready."""
        return contextlib.nullcontext()

    def fraction(self, number: Any) -> float:
        """Return the number as a float."""
        return float(number)

    def cast(self, number: Any, like: Any) -> Any:
        """Return the number unchanged."""
        return number

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """Drop the oldest number and append the newest."""
        return [*numbers[1:], newest]

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """Replace zeros by `value`."""
        return [one or value for one in numbers]

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """Call the function: operations that run eagerly keep their names."""
        return function(tensors)
