"""Numbers and decisions of an exchange.

Python runs only while a compiled step is traced: what an exchange counts lives in cells, what it decides goes through
`cond` and `where`. Where Python sees every step they are plain Python (eager.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cell(Protocol):
    """Holds a number or a vector: a Python value where steps run eagerly, a variable where they may be compiled."""

    def read(self) -> Any:
        """What it holds, here: a tensor in a graph."""
        ...

    def assign(self, value: Any) -> None:
        """Hold another value, from here on; in a graph in every execution."""
        ...

    def value(self) -> Any:
        """What it holds now: a Python number or a NumPy array (bfloat16 as float32), also while a graph is made."""
        ...

    def set(self, value: Any) -> None:
        """Hold another value now, also while a graph is made."""
        ...


class Ops(Protocol):
    """Of steps of both kinds."""

    def cell(self, value: Any) -> Cell:
        """A cell that holds this number, truth value or list of numbers."""
        ...

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """What one of the two returns that is called; both return the same structure of tensors, or nothing."""
        ...

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """One of two numbers or tensors, by a truth value."""
        ...

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """A context: what is assigned within happens when `results` are there."""
        ...

    def fraction(self, number: Any) -> Any:
        """A number, what a cell of one has read, or a variable of one, as one with a fraction."""
        ...

    def cast(self, number: Any, like: Any) -> Any:
        """A number as one that can be multiplied with `like`."""
        ...

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """What a cell of a list has read, without the oldest and with another one behind."""
        ...

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """Numbers read from a cell of a list, with `value` in place of zeros."""
        ...

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """function(tensors), where operations keep their names."""
        ...


class GraphOps(Ops, Protocol):
    """Of tapes and compiled Keras: Python does not see each step."""

    @property
    def tracing(self) -> bool:
        """True while Python traces a graph, whose executions come later."""
        ...

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """Raise InvalidArgumentError with both texts, in an execution, where `condition` is false.

        Returns what `after` takes, to do something if it is true.
        """
        ...
