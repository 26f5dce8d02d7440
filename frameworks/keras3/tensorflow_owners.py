"""Operations of the split exchange in TensorFlow, in graphs and eagerly (paceline.split.keras_wire)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from paceline.collectives.reduce import REDUCE_NODES
from paceline.keras3 import on_tensorflow as module
from paceline.split.keras_wire import OwnersKerasWire


class TensorFlowOwners(OwnersKerasWire):
    """Flat tensors, broadcasts and small sums in TensorFlow."""

    def packed(self, tensors: Sequence[Any]) -> Any:
        """Return one flat tensor of these; a single tensor unchanged."""
        if len(tensors) == 1:
            return tf.convert_to_tensor(tensors[0])
        return tf.concat([tf.reshape(one, [-1]) for one in tensors], 0)

    def unpacked(self, flat: Any, like: Sequence[Any]) -> list[Any]:
        """Return the tensors in `flat`, in the shapes of the tensors or variables `like`."""
        if len(like) == 1:
            return [flat]
        shapes = [_shape(one) for one in like]
        sizes = [tf.reduce_prod(shape) for shape in shapes]
        return [
            tf.ensure_shape(tf.reshape(part, shape), one.shape)
            for part, shape, one in zip(tf.split(flat, sizes, num=len(sizes)), shapes, like, strict=True)
        ]

    def reduce_name(self, owner: int, name: str) -> str:
        """Return the name of the operation of a reduce to `owner`."""
        return f"HorovodReduce{REDUCE_NODES}{owner}.{name}"

    def broadcasts(self, tensors: Sequence[Any], roots: Sequence[int], names: Sequence[str]) -> list[Any]:
        """Broadcast each tensor from its root and return the results."""

        def run(values: Sequence[Any]) -> list[Any]:
            return [
                hvd.broadcast(
                    value, root, name=f"HorovodBroadcast{name}", ignore_name_scope=True, process_set=self.process_set
                )
                for value, root, name in zip(values, roots, names, strict=True)
            ]

        carried = [tf.cast(one, tf.float32) if one.dtype == tf.bfloat16 else one for one in tensors]
        found = self._under_names(("broadcasts", *names), run, carried)
        return [tf.cast(one, tensor.dtype) for one, tensor in zip(found, tensors, strict=True)]

    def squares(self, tensors: Sequence[Any]) -> Any:
        """Return the sum of all squares in float64."""
        zero = tf.constant(0.0, tf.float64)
        return tf.add_n([zero, *(tf.reduce_sum(tf.cast(one, tf.float64) ** 2) for one in tensors)])

    def count_infinite(self, tensors: Sequence[Any]) -> Any:
        """Return the number of elements that are not finite, in float64."""
        zero = tf.constant(0.0, tf.float64)
        return tf.add_n([zero, *(tf.reduce_sum(tf.cast(~tf.math.is_finite(one), tf.float64)) for one in tensors)])

    def totals(self, number: Any, word: str) -> Any:
        """Return a float64 vector with the scalar `number` of each rank."""
        rank, size = int(self.process_set.rank()), int(self.process_set.size())
        own = tf.where(tf.range(size) == rank, number, tf.zeros_like(number))
        settings = self.sums()
        name = settings.operation("HorovodAllreduce", word)
        return self._under_names(("totals", word), lambda given: module._dense(given, settings, name), [own])[0]

    def nan_if_any(self, numbers: Any, zero: Any) -> Any:
        """Return NaN if a number of this vector is above 0, else `zero`."""
        return tf.where(tf.reduce_any(numbers > 0), math.nan, tf.cast(zero, tf.float32))

    def filled(self, like: Any, number: Any) -> Any:
        """Return a tensor of this number, in the shape and type of `like`."""
        return tf.fill(_shape(like), tf.cast(number, like.dtype))

    def zero_after(self, tensors: Sequence[Any]) -> Any:
        """Return 0, whose computation needs all `tensors`; control dependencies on stateless operations are dropped."""
        # A number that TensorFlow cannot know before it runs; see on_tensorflow.
        zero = tf.raw_ops.RandomUniformInt(shape=tf.zeros([0], tf.int32), minval=0, maxval=1, seed=1, seed2=1)
        return tf.add_n([zero, *(tf.size(tf.reshape(one, [-1])[:zero]) for one in tensors)])

    def norm_without(self, squares: Any, rank: int) -> Any:
        """Return the root of the sum of `squares`, without the one of `rank`."""
        return tf.sqrt(tf.reduce_sum(tf.where(tf.range(squares.shape[0]) == rank, tf.zeros_like(squares), squares)))

    def emptied(self, variable: Any) -> None:
        """Release the memory of a variable, which has no elements then."""
        with tf.init_scope():
            variable._value = tf.Variable(tf.zeros([0], variable.value.dtype), trainable=False, name=variable.name)
        variable._shape = (0,)

    def _under_names(
        self, key: tuple[Any, ...], function: Callable[[Sequence[Any]], list[Any]], tensors: Sequence[Any]
    ) -> list[Any]:
        """Return function(tensors), whose operations keep their names: eagerly they would have none."""

        def run(given: Sequence[Any]) -> list[Any]:
            with tf.name_scope(module._SCOPE):
                return function(given)

        if not tf.executing_eagerly():
            return run(tensors)
        if key not in self.functions:
            self.functions[key] = tf.function(run, reduce_retracing=True, autograph=False)
        return list(self.functions[key](list(tensors)))


def _shape(one: Any) -> Any:
    shape = tf.TensorShape(one.shape)
    return shape.as_list() if shape.is_fully_defined() else tf.shape(one)
