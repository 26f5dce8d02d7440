"""Communication of Keras 3 on TensorFlow; `on_torch` has the same names for PyTorch.

Every operation is named. TensorFlow drops names of operations that run eagerly, so those run inside a small
`tf.function`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from paceline import variables
from paceline.errors import UsageError
from paceline.keras3 import same_gradients
from paceline.keras3.checks import after_checks as after_checks
from paceline.keras3.settings import Reduction, Settings, exchanged
from paceline.keras3.tensorflow_weights import checked as checked
from paceline.keras3.tensorflow_weights import mean_of as mean_of
from paceline.keras3.tensorflow_weights import mean_or as mean_or
from paceline.keras3.tensorflow_weights import with_weight as with_weight
from paceline.native.library import loaded
from paceline.native.world import process

LIBRARY = "tensorflow"  # Horovod's
# An absolute scope: names below it are unique in a graph, and Horovod leaves the scope out of the name it uses.
_SCOPE = "horovod/"
# Types that Horovod's TensorFlow operations do not support are sent as float32.
_CARRIED_AS_FLOAT32 = (tf.bfloat16,)

# Above this number the oldest compiled reductions are dropped; the only cost is a new trace.
_MOST_REDUCTIONS = 128


class _Compiled:
    """Functions of named operations, and reductions of synchronous exchanges."""

    def __init__(self) -> None:
        self.functions: dict[tuple[Any, ...], Any] = {}
        self.reductions: dict[tuple[Any, ...], Any] = {}


def _known() -> _Compiled:
    return process(loaded(LIBRARY)).of(_Compiled)


def _elastic() -> bool:
    return variables.elastic()


def takes_part(process_set: Any) -> bool:
    """True if this rank has peers. In elastic mode that changes while a graph lives: always True."""
    return _elastic() or (process_set.included() and process_set.size() > 1)


def _ranks(process_set: Any, dtype: Any) -> Any:
    if _elastic():
        return tf.cast(hvd.size_op(process_set.process_set_id), dtype)
    return tf.cast(process_set.size(), dtype)


def _unfoldable(tensors: Sequence[Any]) -> list[Any]:
    """The same tensors, hidden from constant folding: TensorFlow cannot know them before it runs.

    Horovod's operations are registered as functions of their input. TensorFlow would call them once on a constant while
    it compiles, and reuse that answer (zeros, for a pipelined exchange) in all steps. Instead, a dimension is inserted
    at a position drawn from [0, 1) and removed again, which copies nothing. A random draw is stateful, but does not
    order the operations after it.
    """
    with tf.device("CPU:0"):
        zero = tf.raw_ops.RandomUniformInt(shape=tf.zeros([0], tf.int32), minval=0, maxval=1, seed=1, seed2=1)
    result = []
    for tensor in tensors:
        same = tf.reshape(tf.expand_dims(tensor, zero), tf.shape(tensor))
        same.set_shape(tensor.shape)
        result.append(same)
    return result


def _sparse(grad: Any, settings: Settings, index: int) -> Any:
    """Concatenate the IndexedSlices of all ranks: their sum or their average."""
    if settings.op not in (hvd.Average, hvd.Sum):
        raise UsageError(
            "A sparse gradient (tf.IndexedSlices) can be averaged or summed, nothing else.",
            "Use op=Average or op=Sum, or sparse_as_dense=True.",
        )

    def gather(tensor: Any, part: str) -> Any:
        name = settings.operation("HorovodAllgather", index) + part
        return hvd.allgather(tensor, name=name, ignore_name_scope=True, process_set=settings.process_set)

    with tf.device(settings.device_sparse):
        values, rows = _unfoldable([grad.values, grad.indices])
        if values.dtype in _CARRIED_AS_FLOAT32:
            values = tf.cast(values, tf.float32)
        values = tf.cast(gather(values, "_values"), grad.values.dtype)
        if settings.op == hvd.Average:
            values /= _ranks(settings.process_set, values.dtype)
        return tf.IndexedSlices(values, gather(rows, "_indices"), grad.dense_shape)


def _dense(grads: Sequence[Any], settings: Settings, name: str) -> list[Any]:
    """Reduce dense gradients in one message: a single tensor or an explicit group."""
    carried = [tf.cast(grad, tf.float32) if grad.dtype in _CARRIED_AS_FLOAT32 else grad for grad in _unfoldable(grads)]
    options: dict[str, Any] = {
        "device_dense": settings.device_dense,
        "compression": settings.compression,
        "op": settings.op,
        "prescale_factor": settings.prescale,
        "postscale_factor": settings.postscale,
        "process_set": settings.process_set,
        "ignore_name_scope": True,
    }
    if len(carried) == 1:
        one = hvd._allreduce_cond if _elastic() else hvd.allreduce
        reduced = [one(carried[0], name=name, **options)]
    else:
        many = hvd._grouped_allreduce_cond if _elastic() else hvd.grouped_allreduce
        reduced = many(carried, name=name, **options)
    return [tf.cast(new, old.dtype) for new, old in zip(reduced, grads)]


def full_names(name: str, count: int) -> list[str]:
    """Names that Horovod gives an allreduce of `name`, or the `count` tensors of a grouped one."""
    return [name] if count == 1 else [f"{name}_{number + 1}of{count}" for number in range(count)]


def start(tensors: Sequence[Any], settings: Settings, name: str) -> Callable[[], list[Any]]:
    """Start one message of dense tensors. In a graph, operations wait for each other by themselves."""
    with tf.name_scope(_SCOPE):
        results = _dense(tensors, settings, name)
    return lambda: results


def _reduce(
    grads: Sequence[Any], settings: Settings, indices: Sequence[int], groups: Sequence[Sequence[int]]
) -> list[Any]:
    result = list(grads)
    with tf.name_scope(_SCOPE):
        for group in groups:
            for position in group:
                if isinstance(grads[position], tf.IndexedSlices):
                    result[position] = _sparse(grads[position], settings, indices[position])
            dense, many, name = _dense_of(grads, settings, indices, group)
            for position, value in zip(dense, _dense(many, settings, name) if dense else ()):
                result[position] = value
    return result


def _dense_of(
    grads: Sequence[Any], settings: Settings, indices: Sequence[int], group: Sequence[int]
) -> tuple[list[int], list[Any], str]:
    """Positions of a group's dense gradients, these gradients, and the name of their message."""
    dense = [position for position in group if not isinstance(grads[position], tf.IndexedSlices)]
    many = [grads[position] for position in dense]
    return dense, many, settings.bucket([indices[position] for position in dense], many) if dense else ""


class Reducer(Reduction):
    """Reduction in a graph."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # graphs with an operation for each variable

    def __call__(self, grads: Sequence[Any], keys: Sequence[Any], indices: Sequence[int], key_of: Any) -> list[Any]:
        """Return the reduced gradients. Eager calls run a compiled function."""
        settings, exchange = self._settings, self.exchange
        grads = [
            grad if isinstance(grad, tf.IndexedSlices) and not self.dense else tf.convert_to_tensor(grad)
            for grad in grads
        ]
        if not takes_part(settings.process_set):
            return grads
        same_gradients.check(LIBRARY, settings.process_set, settings.name, indices)
        if not grads:
            return grads
        groups = self.groups(keys, key_of, indices, grads)
        # The function outlives this object, because every step makes a new tape. It must not hold the variables in the
        # settings' groups, which would live as long.
        if exchange is not None:
            buckets = exchange.wire.buckets(indices, groups, grads)
            exchange.begin(buckets)

            def reduce(tensors: Sequence[Any]) -> list[Any]:
                return exchanged(exchange, tensors, buckets, groups)
        else:
            alone = dataclasses.replace(settings, groups=None)
            self._begin_encoding(grads, indices, groups)

            def reduce(tensors: Sequence[Any]) -> list[Any]:
                return _reduce(tensors, alone, indices, groups)

        if not tf.executing_eagerly() and self._enter_graph():
            return reduce(grads)
        return list(self._compiled(reduce, indices, groups)(grads))

    def _begin_encoding(self, grads: Sequence[Any], indices: Sequence[int], groups: Sequence[Sequence[int]]) -> None:
        """Prepare codec and collective of each message here, because compiled steps run no Python."""
        encoding = self._settings.encoding
        if encoding is None:
            return
        encoding.meet(self._settings.name)
        for group in groups:
            dense, many, name = _dense_of(grads, self._settings, indices, group)
            members = [indices[position] for position in dense]
            if dense:
                encoding.begin(name, functools.partial(full_names, name, len(dense)), members, many)

    def _enter_graph(self) -> bool:
        """Return whether operations of this graph can have the exchange's names: a graph may hold each name once.

        Raises UsageError if an optimizer's gradients are reduced twice.
        """
        graph = tf.compat.v1.get_default_graph()
        if self.exchange is not None and graph in self._graphs:
            raise UsageError(
                f"Rank {hvd.rank()}: the optimizer {self.exchange.wire.label!r}, whose exchange is not synchronous, "
                "was expected to be applied once in a tf.function, found twice.",
                "Apply all gradients at once, make an optimizer for each, or leave tf.function out.",
            )
        self._graphs.add(graph)
        if self.exchange is None:
            return True
        graphs: weakref.WeakSet[Any] = self.exchange.wire.graphs
        first = graph not in graphs
        graphs.add(graph)
        return first

    def _compiled(
        self, reduce: Callable[..., list[Any]], indices: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> Any:
        """Return `reduce` compiled, from the cache if the same reduction was compiled before."""
        key: tuple[Any, ...] = (tuple(indices), tuple(map(tuple, groups)), self._settings.process_set.size())
        if self.exchange is not None:
            functions = self.exchange.wire.functions
        else:
            functions, key = _known().reductions, (self._settings.compiled_with, *key)
        if key not in functions:
            while len(functions) >= _MOST_REDUCTIONS:
                functions.pop(next(iter(functions)))
            functions[key] = tf.function(reduce, reduce_retracing=True, autograph=False)
        return functions[key]

    def scale_local(self, grad: Any) -> Any:
        """Divide a gradient that stays on this rank by the number of ranks, as for its share of an average."""
        if isinstance(grad, tf.IndexedSlices):
            ranks = _ranks(self._settings.process_set, grad.values.dtype)
            return tf.IndexedSlices(grad.values / ranks, grad.indices, grad.dense_shape)
        return grad / _ranks(self._settings.process_set, grad.dtype)


class Accumulator:
    """Sum the gradients of backward_passes_per_step backward passes before reduction; the count lives in the graph.

    Compiled steps of different variables, which may alternate, count their passes separately. A pass counts when all of
    it is done: one that raises leaves sums and count unchanged, on every rank.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._buffers: dict[int, Any] = {}
        self._passes: dict[frozenset[int], Any] = {}
        self.counter: Any = None  # passes of the variables of the last `add`; the name is Horovod's

    def add(self, grads: Sequence[Any], indices: Sequence[int], reduce: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Return the reduced sums after the last pass, the sums so far otherwise."""
        settings = self._settings
        passes = self.counter = self._number_of(frozenset(indices))
        buffers, sums = [], []
        for grad, index in zip(grads, indices):
            if isinstance(grad, tf.IndexedSlices):
                if not settings.sparse_as_dense:
                    raise UsageError(
                        f"The gradient with number {index} is sparse (tf.IndexedSlices), and "
                        f"backward_passes_per_step={settings.backward_passes_per_step} adds up dense gradients only.",
                        "Give sparse_as_dense=True, or backward_passes_per_step=1.",
                    )
                grad = tf.convert_to_tensor(grad)
            if index not in self._buffers:
                with tf.init_scope():
                    self._buffers[index] = tf.Variable(tf.zeros(grad.shape, grad.dtype), trainable=False)
            buffers.append(self._buffers[index])
            sums.append(self._buffers[index] + grad)
        done = passes + 1

        def keep(values: Sequence[Any], number: Any) -> None:
            assigned = [buffer.assign(value, read_value=False) for buffer, value in zip(buffers, values)]
            with tf.control_dependencies(assigned):
                passes.assign(number)

        def here() -> list[Any]:
            # Copies within the branch: assignments there do not wait for tensors outside, despite dependencies.
            return [tf.identity(one) for one in sums]

        def flush() -> list[Any]:
            reduced = reduce(here())
            with tf.control_dependencies(reduced):
                keep([tf.zeros_like(buffer) for buffer in buffers], 0)
            return reduced

        def wait() -> list[Any]:
            mine = here()
            with tf.control_dependencies(mine):
                keep(mine, done)
            return mine

        return list(tf.cond(tf.equal(done, settings.backward_passes_per_step), flush, wait))

    def reset(self) -> None:
        """Reset all sums and counts to zero."""
        for one in (*self._passes.values(), *self._buffers.values()):
            one.assign(tf.zeros_like(one))

    def when_due(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update` if the last `add` reduced, else `otherwise`."""

        def run(action: Callable[[], Any]) -> Any:
            action()
            return tf.constant(0)

        tf.cond(tf.equal(self.counter, 0), lambda: run(update), lambda: run(otherwise))

    def _number_of(self, indices: frozenset[int]) -> Any:
        if indices not in self._passes:
            with tf.init_scope():
                self._passes[indices] = tf.Variable(0, trainable=False)
        return self._passes[indices]


def tensors_like(arrays: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Convert NumPy arrays to tensors of the variables' types."""
    return [tf.constant(array, native(variable).dtype) for array, variable in zip(arrays, variables)]


def finite(tensors: Sequence[Any]) -> bool:
    """True if no tensor has an infinity or a NaN; eager tensors only."""
    return all(bool(tf.reduce_all(tf.math.is_finite(tensor))) for tensor in tensors)


def gradients(loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> list[Any]:
    """Compute gradients as Keras 2's optimizers did: of a tensor (with its tape) or of a function without arguments."""
    if callable(loss):
        with tape if tape is not None else tf.GradientTape() as recording:
            recording.watch([native(variable) for variable in variables])
            value = loss()
        loss, tape = value, recording
    elif tape is None:
        raise UsageError(
            "compute_gradients() got a loss tensor without the tape that recorded it.",
            "Pass tape=, or a function without arguments that computes the loss.",
        )
    return list(tape.gradient(loss, variables, grad_loss))


def here() -> Any:
    """Return the current graph as a key; None when executing eagerly."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def native(variable: Any) -> Any:
    """Return the tf.Variable in a Keras variable."""
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)


def value(variable: Any) -> Any:
    """Return the tensor in a variable; no gradient flows through it."""
    return tf.stop_gradient(tf.convert_to_tensor(native(variable)))


def _named(operation: Callable[..., Any], name: str, *args: Any) -> Any:
    """Return a function of one tensor that runs `operation` under `name`, eagerly or not."""
    key, functions = (operation, name, *args), _known().functions
    if key not in functions:

        def run(tensor: Any) -> Any:
            with tf.name_scope(_SCOPE):
                return operation(tensor, name, *args)

        functions[key] = tf.function(run, reduce_retracing=True, autograph=False)
    return functions[key]


def call_named(function: Callable[..., Any], given: inspect.BoundArguments) -> Any:
    """Call one of Horovod's functions with these arguments in a graph, so that the operation keeps its name."""
    if not tf.executing_eagerly():
        return function(*given.args, **given.kwargs)
    options = dict(given.arguments)
    word = "tensors" if "tensors" in options else "tensor"
    value = options.pop(word)
    about = {name: (getattr(one, "process_set_id", None), one) for name, one in options.items()}  # ids are reused
    key, functions = (call_named, function, *sorted(about.items())), _known().functions
    if key not in functions:

        def body(value: Any) -> Any:
            one = list(value) if word == "tensors" else value
            return function(**{word: one}, **options, ignore_name_scope=True)

        functions[key] = tf.function(body, reduce_retracing=True, autograph=False)
    return functions[key](value)


def _average(tensor: Any, name: str) -> Any:
    return hvd.allreduce(tensor, op=hvd.Average, name=name, ignore_name_scope=True)


def _broadcast(tensors: Any, name: str, root_rank: int) -> Any:
    return [
        hvd.broadcast(tensor, root_rank, name=f"{name}_{index}", ignore_name_scope=True)
        for index, tensor in enumerate(tensors)
    ]


def average(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Average a float64 array over all ranks."""
    result: np.ndarray[Any, Any] = _named(_average, f"HorovodAllreduce_{name}")(tf.constant(values)).numpy()
    return result


def broadcast(variables: Sequence[Any], root_rank: int, name: str) -> None:
    """Assign the root's values of Keras variables on all ranks."""
    carried = []
    for variable in variables:
        value = tf.convert_to_tensor(native(variable))
        carried.append(tf.cast(value, tf.float32) if value.dtype in _CARRIED_AS_FLOAT32 else value)
    results = _named(_broadcast, f"HorovodBroadcast_{name}", root_rank)(carried)
    for variable, value in zip(variables, results):
        variable.assign(tf.cast(value, native(variable).dtype))


def gather_object(value: Any, name: str) -> list[Any]:
    """Gather `value` of every rank, ordered by rank."""
    return list(hvd.allgather_object(value, name=name))


def broadcast_object(value: Any, root_rank: int, name: str) -> Any:
    """Return the root's `value` on all ranks."""
    return hvd.broadcast_object(value, root_rank, name=name)
