"""The Wire of an optimizer of Keras on TensorFlow, and of a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.exchange.keras_wire import KerasWire
from paceline.exchange.ops import Cell
from paceline.keras3 import on_tensorflow as module


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


class TensorFlowOps:
    """See GraphOps; in graphs and eagerly."""

    @property
    def tracing(self) -> bool:
        """See GraphOps.tracing."""
        return not tf.executing_eagerly()

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """See Ops.in_graph: operations that run eagerly have no names."""
        return list(tf.function(function, autograph=False)(tensors))

    def cell(self, value: Any) -> Cell:
        """See Ops.cell."""
        return VariableCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """See Ops.cond."""
        if isinstance(predicate, bool):
            return then() if predicate else otherwise()

        def run(action: Callable[[], Any]) -> Any:
            result = action()
            return tf.constant(0) if result is None else result

        return tf.cond(predicate, lambda: run(then), lambda: run(otherwise))

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """See Ops.where."""
        if isinstance(predicate, bool):
            return one if predicate else other
        return tf.where(predicate, one, other)

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """See GraphOps.require."""
        return [tf.debugging.Assert(condition, [f"{problem} {remedy}"], summarize=1)]

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """See Ops.after."""
        context: AbstractContextManager[Any] = tf.control_dependencies(results)
        return context

    def fraction(self, number: Any) -> Any:
        """See Ops.fraction."""
        return tf.cast(tf.convert_to_tensor(module.native(number)), tf.float32)

    def cast(self, number: Any, like: Any) -> Any:
        """See Ops.cast."""
        return tf.cast(number, like.dtype)

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """See Ops.shifted."""
        return tf.concat([numbers[1:], [newest]], 0)

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """See Ops.without_zeros."""
        return tf.where(tf.equal(numbers, 0.0), value, numbers)


class TensorFlowWire(KerasWire):
    """In graphs and eagerly."""

    graph_ops = TensorFlowOps()

    def __init__(self, settings: Any, word: str) -> None:
        """See KerasWire."""
        super().__init__(module, "tensorflow", settings, word)

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """See Wire.where."""
        return tf.where(predicate, one, other)

    def like(self, tensor: Any) -> tuple[tuple[int, ...], str]:
        """See Wire.like."""
        return tuple(tensor.shape), tensor.dtype.name

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """See Wire.zeros."""
        return tf.zeros(shape, dtype)

    def zeros_like(self, tensor: Any) -> Any:
        """See Wire.zeros_like."""
        return tf.zeros_like(tensor)

    def copy(self, tensor: Any) -> Any:
        """See Wire.copy."""
        return tf.identity(tensor)

    def cell_of(self, weight: Any) -> Cell:
        """See Wire.cell_of."""
        with tf.init_scope():
            return VariableCell(tf.identity(module.native(weight)))
