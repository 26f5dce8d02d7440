"""Numbers and decisions of an exchange, in graphs and in Python.

Python runs only while a compiled step is traced. An exchange therefore keeps its counts in cells, and decides with
`cond` and `where`. Where Python sees every step, these are plain Python (eager.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cell(Protocol):
    """A number or a vector: a Python value where steps run eagerly, a variable where they may be compiled."""

    def read(self) -> Any:
        """Return the value at this point; a tensor in a graph."""
        ...

    def assign(self, value: Any) -> None:
        """Replace the value from here on; in a graph, in every execution."""
        ...

    def value(self) -> Any:
        """Return the value now, also during tracing: a Python number or a NumPy array (bfloat16 as float32)."""
        ...

    def set(self, value: Any) -> None:
        """Replace the value now, also during tracing."""
        ...


class Ops(Protocol):
    """Operations of steps of both kinds."""

    def cell(self, value: Any) -> Cell:
        """Return a cell that holds this number, truth value or list of numbers."""
        ...

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Call one of two functions and return its result; both return the same structure of tensors, or nothing."""
        ...

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Return one of two numbers or tensors, by a truth value."""
        ...

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return a context: assignments within it happen after `results` are computed."""
        ...

    def fraction(self, number: Any) -> Any:
        """Convert a number, a value read from a cell, or a variable to a floating-point number."""
        ...

    def cast(self, number: Any, like: Any) -> Any:
        """Convert a number such that it can be multiplied with `like`."""
        ...

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """Drop the oldest of numbers read from a cell, and append the newest."""
        ...

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """Replace zeros in numbers read from a cell by `value`."""
        ...

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """Return function(tensors), run where operations keep their names."""
        ...


class GraphOps(Ops, Protocol):
    """Operations of tapes and compiled Keras, where Python does not see each step."""

    @property
    def tracing(self) -> bool:
        """True while Python traces a graph, whose executions come later."""
        ...

    def observed(self, function: Callable[[list[Any]], None], tensors: Sequence[Any]) -> list[Any]:
        """Call function(arrays) with the values of `tensors`; in a graph, in every execution.

        Returns the operations to pass to `after` for work that follows the call.
        """
        ...

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """Raise InvalidArgumentError with both texts, in an execution, if `condition` is false.

        Returns the operations to pass to `after` for work that follows a true condition.
        """
        ...
