"""How exchanges see an optimizer of Keras on TensorFlow, or a tape (see paceline.exchange.adapter)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.exchange.adapter import Cell
from paceline.exchange.wire_adapter import WireAdapter
from paceline.keras3 import on_tensorflow as wire


class VariableCell:
    """A cell that is a variable, so that a compiled step goes on by itself; no Python runs in it."""

    def __init__(self, value: Any) -> None:
        with tf.init_scope():
            self._variable = tf.Variable(value, trainable=False)

    def read(self) -> Any:
        """See Cell.read."""
        return self._variable.read_value()

    def assign(self, value: Any) -> None:
        """See Cell.assign."""
        self._variable.assign(tf.cast(value, self._variable.dtype))

    def value(self) -> Any:
        """See Cell.value."""
        with tf.init_scope():
            found = self._variable.numpy()
        return np.array(found, np.float32 if self._variable.dtype == tf.bfloat16 else found.dtype)

    def set(self, value: Any) -> None:
        """See Cell.set."""
        with tf.init_scope():
            self.assign(tf.broadcast_to(tf.cast(value, self._variable.dtype), self._variable.shape))


class TensorFlowAdapter(WireAdapter):
    """In graphs and eagerly."""

    compiled = True

    def __init__(self, settings: Any, word: str) -> None:
        """See WireAdapter."""
        super().__init__(wire, "tensorflow", settings, word)

    @property
    def tracing(self) -> bool:
        """See Adapter.tracing."""
        return not tf.executing_eagerly()

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """See Adapter.in_graph: operations that run eagerly have no names."""
        return list(tf.function(function, autograph=False)(tensors))

    # Numbers and decisions.

    def cell(self, value: Any) -> Cell:
        """See Adapter.cell."""
        return VariableCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """See Adapter.cond."""
        if isinstance(predicate, bool):
            return then() if predicate else otherwise()

        def run(action: Callable[[], Any]) -> Any:
            result = action()
            return tf.constant(0) if result is None else result

        return tf.cond(predicate, lambda: run(then), lambda: run(otherwise))

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """See Adapter.where."""
        if isinstance(predicate, bool):
            return one if predicate else other
        return tf.where(predicate, one, other)

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """See Adapter.require."""
        return [tf.debugging.Assert(condition, [f"{problem} {remedy}"], summarize=1)]

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """See Adapter.after."""
        context: AbstractContextManager[Any] = tf.control_dependencies(results)
        return context

    def fraction(self, number: Any) -> Any:
        """See Adapter.fraction."""
        return tf.cast(tf.convert_to_tensor(wire.native(number)), tf.float32)

    def cast(self, number: Any, like: Any) -> Any:
        """See Adapter.cast."""
        return tf.cast(number, like.dtype)

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """See Adapter.shifted."""
        return tf.concat([numbers[1:], [newest]], 0)

    def rescheduled(self, rate: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """See Adapter.rescheduled: the optimizer asks."""
        return contextlib.nullcontext()

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """See Adapter.without_zeros."""
        return tf.where(tf.equal(numbers, 0.0), value, numbers)

    # Tensors and weights.

    def like(self, tensor: Any) -> tuple[tuple[int, ...], str]:
        """See Adapter.like."""
        return tuple(tensor.shape), tensor.dtype.name

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """See Adapter.zeros."""
        return tf.zeros(shape, dtype)

    def zeros_like(self, tensor: Any) -> Any:
        """See Adapter.zeros_like."""
        return tf.zeros_like(tensor)

    def copy(self, tensor: Any) -> Any:
        """See Adapter.copy."""
        return tf.identity(tensor)

    def cell_of(self, weight: Any) -> Cell:
        """See Adapter.cell_of."""
        with tf.init_scope():
            return VariableCell(tf.identity(wire.native(weight)))
