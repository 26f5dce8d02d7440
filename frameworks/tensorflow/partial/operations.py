"""hvd.partial_allreduce: an allreduce that does not wait for late ranks (see paceline.partial.settings)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import tensorflow as tf

from paceline.arguments import check_reproducible
from paceline.native.exchanges import flush_next
from paceline.native.library import loaded
from paceline.native.world import process
from paceline.partial.calls import DENSE, begin, calls, check
from paceline.partial.settings import Partial
from paceline.tensorflow.horovod import horovod_tensorflow as horovod
from paceline.tensorflow.names import node_name

# The result, and an int32 scalar.
Answer = tuple[Any, Any]


class PartialResult:
    """Result that may still be in flight; returned by `partial_allreduce_async`."""

    def __init__(self, answer: Answer | Future[Answer]) -> None:
        self._answer = answer

    def done(self) -> bool:
        """Return True if `wait` returns at once. Always True in a graph, where operations wait for each other."""
        return not isinstance(self._answer, Future) or self._answer.done()

    def wait(self) -> Answer:
        """Wait for the result.

        Returns:
            The result, of the tensor's shape and dtype, and the number of fresh contributions in it: int32 of shape ().
                If this rank missed several rounds, both are sums over these rounds.

        Raises:
            tf.errors.OpError: a rank is lost, or the tensor differs from earlier rounds in shape or dtype.
        """
        return self._answer.result() if isinstance(self._answer, Future) else self._answer


@tf.autograph.experimental.do_not_convert
def _hand_in(
    tensor: Any, name: str, partial: Partial, op: Any, process_set: Any, flush: bool, waits: bool
) -> PartialResult:
    sparse = isinstance(tensor, (tf.IndexedSlices, tf.SparseTensor))
    tensor = tensor if sparse else tf.convert_to_tensor(tensor)
    layout = type(tensor).__name__ if sparse else DENSE
    check(horovod, name, tensor.dtype.name, op, layout)
    node = node_name(name)
    library = loaded("tensorflow")
    check_reproducible(partial)
    begin(library, node, partial, process_set)
    key = (node, tensor.dtype, op, process_set.process_set_id)
    operations = process(library).of(_Operations)
    if key not in operations:
        operations[key] = _Operation(node, tensor.dtype, op, process_set)
    operation = operations[key]
    flat = tf.reshape(tf.stop_gradient(tensor), [-1])

    def run() -> Answer:
        # In a graph: at every execution, before the operation.
        before = [tf.py_function(bring_out, [], [])] if flush else []
        with tf.control_dependencies(before):
            result, fresh = operation(flat)
        return tf.ensure_shape(tf.reshape(result, tf.shape(tensor)), tensor.shape), fresh

    def bring_out() -> None:
        flush_next(library, process_set.process_set_id, node)

    return PartialResult(run() if waits or not tf.executing_eagerly() else _in_thread(run, name))


class _Operation:
    """Function of a vector: the elements of the result, and the count after them.

    It has a graph of its own: operations that run eagerly have no names, and names change when a graph is repeated. The
    submitted vector includes the value of a variable that the result changes. TensorFlow therefore treats the operation
    as a call with an effect: it does not drop, fold, merge or reorder it. A control dependency alone would be optimised
    away.
    """

    def __init__(self, node: str, dtype: Any, op: Any, process_set: Any) -> None:
        self._node = node
        self._op = op
        self._process_set = process_set
        with tf.init_scope(), tf.device("CPU:0"):
            self._fresh = tf.Variable(0, dtype=tf.int32, trainable=False)
        # Not called through tf.function: it would run eagerly under tf.config.run_functions_eagerly.
        self._graph = tf.function(self._call, autograph=False).get_concrete_function(tf.TensorSpec([None], dtype))

    def __call__(self, flat: Any) -> Answer:
        result, fresh = self._graph(flat)
        return result, fresh

    def _call(self, flat: Any) -> Answer:
        # Elastic training recognises failed operations by this word in their path.
        with tf.device("CPU:0"), tf.name_scope("HorovodAllreduce/"):
            counted = tf.concat([flat, tf.cast(self._fresh.read_value(), flat.dtype)[tf.newaxis]], 0)
            answer = horovod.allreduce(
                counted,
                op=self._op,
                name=self._node,
                ignore_name_scope=True,
                process_set=self._process_set,
            )
            fresh = tf.cast(tf.round(answer[-1]), tf.int32)
            self._fresh.assign(fresh)
            return answer[:-1], fresh


class _Operations(dict[tuple[str, Any, Any, int], _Operation]):
    """By name, dtype, op and process set."""


def _in_thread(run: Callable[[], Answer], name: str) -> Future[Answer]:
    """Run in a new thread for each call, so that flushes of many names wait at the same time."""
    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(run())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


partial_allreduce_async, partial_allreduce, flush_partial = calls(horovod, _hand_in)
