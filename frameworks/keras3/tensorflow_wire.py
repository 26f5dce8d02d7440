"""Wire of a Keras optimizer on TensorFlow, and of a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.exchange.ops import Cell
from paceline.keras3 import on_tensorflow as module
from paceline.keras3.tensorflow_owners import TensorFlowOwners


class VariableCell:
    """Cell held in a tf.Variable, so that compiled steps update it without Python."""

    def __init__(self, value: Any) -> None:
        with tf.init_scope():
            self._variable = tf.Variable(value, trainable=False)

    def read(self) -> Any:
        """Return the value as a tensor, in a graph or eagerly."""
        return self._variable.read_value()

    def assign(self, value: Any) -> None:
        """Assign a value, in a graph at every execution."""
        self._variable.assign(tf.cast(value, self._variable.dtype))

    def value(self) -> Any:
        """Return the current value as a NumPy array (bfloat16 as float32), also while a graph is traced."""
        with tf.init_scope():
            found = self._variable.numpy()
        return np.array(found, np.float32 if self._variable.dtype == tf.bfloat16 else found.dtype)

    def set(self, value: Any) -> None:
        """Set the value at once, also while a graph is traced."""
        with tf.init_scope():
            self.assign(tf.broadcast_to(tf.cast(value, self._variable.dtype), self._variable.shape))


class TensorFlowOps:
    """Operations on cells and tensors, in graphs and eagerly."""

    @property
    def tracing(self) -> bool:
        """True while Python traces a graph that is executed later."""
        return not tf.executing_eagerly()

    def in_graph(self, function: Callable[[list[Any]], list[Any]], tensors: list[Any]) -> list[Any]:
        """Return function(tensors) from a graph: operations that run eagerly have no names."""
        return list(tf.function(function, autograph=False)(tensors))

    def cell(self, value: Any) -> Cell:
        """Return a cell with this value."""
        return VariableCell(value)

    def cond(self, predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Return the result of one of two functions. A Python bool decides while tracing."""
        if isinstance(predicate, bool):
            return then() if predicate else otherwise()

        def run(action: Callable[[], Any]) -> Any:
            result = action()
            return tf.constant(0) if result is None else result

        return tf.cond(predicate, lambda: run(then), lambda: run(otherwise))

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Return one of two tensors, selected by a truth value."""
        if isinstance(predicate, bool):
            return one if predicate else other
        return tf.where(predicate, one, other)

    def observed(self, function: Callable[[list[Any]], None], tensors: Sequence[Any]) -> list[Any]:
        """Return an operation that calls function(arrays) with the values of `tensors`."""

        def call(*arrays: Any) -> Any:
            function(list(arrays))
            return np.int64(0)

        return [tf.numpy_function(call, list(tensors), tf.int64)]

    def require(self, condition: Any, problem: str, remedy: str) -> list[Any]:
        """Return an assertion that raises InvalidArgumentError with both texts if `condition` is false."""
        return [tf.debugging.Assert(condition, [f"{problem} {remedy}"], summarize=1)]

    def after(self, results: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return a context whose assignments wait for `results`."""
        context: AbstractContextManager[Any] = tf.control_dependencies(results)
        return context

    def fraction(self, number: Any) -> Any:
        """Return a number or variable as a float32 tensor."""
        return tf.cast(tf.convert_to_tensor(module.native(number)), tf.float32)

    def cast(self, number: Any, like: Any) -> Any:
        """Cast a number to the type of `like`."""
        return tf.cast(number, like.dtype)

    def shifted(self, numbers: Any, newest: Any) -> Any:
        """Return the list without its oldest entry and with `newest` appended."""
        return tf.concat([numbers[1:], [newest]], 0)

    def without_zeros(self, numbers: Any, value: Any) -> Any:
        """Replace zeros in the list by `value`."""
        return tf.where(tf.equal(numbers, 0.0), value, numbers)


class TensorFlowWire(TensorFlowOwners):
    """Wire for graphs and eager execution."""

    graph_ops = TensorFlowOps()

    def __init__(self, settings: Any, word: str) -> None:
        """Set up the wire of one optimizer or tape."""
        super().__init__(module, "tensorflow", settings, word)

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Select from two tensors, element by element."""
        return tf.where(predicate, one, other)

    def like(self, tensor: Any) -> tuple[tuple[int, ...], str]:
        """Return shape and NumPy's type name."""
        return tuple(tensor.shape), tensor.dtype.name

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a tensor of zeros."""
        return tf.zeros(shape, dtype)

    def zeros_like(self, tensor: Any) -> Any:
        """Return zeros of a tensor's shape and type."""
        return tf.zeros_like(tensor)

    def copy(self, tensor: Any) -> Any:
        """Return a copy of a tensor."""
        return tf.identity(tensor)

    def cell_of(self, weight: Any) -> Cell:
        """Return a cell with the weight's current values."""
        with tf.init_scope():
            return VariableCell(tf.identity(module.native(weight)))
