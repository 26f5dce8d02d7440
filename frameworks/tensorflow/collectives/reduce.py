"""hvd.reduce: an allreduce whose result only one rank needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.collectives.reduce_form import Call, form_of
from paceline.errors import UsageError
from paceline.native.library import loaded
from paceline.native.world import process
from paceline.tensorflow.horovod import horovod_tensorflow as horovod
from paceline.tensorflow.names import node_name

# Types that Horovod's operations do not support are sent as another type.
_CARRIED_AS = {tf.bfloat16: tf.float32}


class _Compiled(dict[tuple[Any, ...], Any]):
    """Graphs of eager calls: operations that run eagerly have no names."""


@tf.autograph.experimental.do_not_convert
@form_of(horovod, lambda _: "unnamed")
def reduce(tensor: Any, call: Call) -> Any:
    """Combine the tensors of all ranks on `root_rank`; the other ranks return a copy of `tensor`.

    With a PACELINE_COLLECTIVE other than gloo, data passes once along a chain of ranks: half of an allreduce's bytes.
    With gloo it is an allreduce. It runs in CPU memory.

    Args:
        tensor: dense, of one shape and dtype on all ranks; may be a variable. bfloat16 is summed in float32.
        root_rank: rank among all ranks, as for hvd.broadcast.
        name: the same on all ranks, one call of a name at a time. None: all ranks make unnamed calls in the same order.
        op: hvd.Average, Sum, Min, Max or Product; factors as for hvd.allreduce.
        process_set: the ranks to combine. All of them must make the call and, in a graph, use the result.

    Returns:
        A tensor of the shape and dtype of `tensor`. The gradient of averages and sums is, on all ranks, the gradient of
            the root's result times the factors; all ranks compute it. Gradients of the copies are dropped.

    Raises:
        UsageError: (a ValueError) the root is outside the process set, this rank is not in it, the operation is another
            one, or the tensor is sparse.
        tf.errors.OpError: a rank is lost.
    """
    about = call.about
    if isinstance(tensor, (tf.IndexedSlices, tf.SparseTensor)):
        raise UsageError(
            f"reduce of {about.name!r} was given a {type(tensor).__name__}.", "Use a dense tensor, or hvd.allgather."
        )
    tensor = tf.convert_to_tensor(tensor)
    how = (call.root_rank, call.op, call.prescale_factor, call.postscale_factor, call.process_set.process_set_id)
    key = (about.operation(on_cpu=True), about, *how)

    def forward(value: Any) -> Any:
        return _reduced(value, call)

    def backward(upstream: Any) -> Any:
        return _given_back(upstream, call)

    @tf.custom_gradient
    def differentiable(value: Any) -> Any:
        return _named(forward, key)(value), lambda upstream: _named(backward, key)(upstream)

    return differentiable(tensor)


def _named(function: Callable[[Any], Any], key: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return `function` in a graph, where operations have names. `key` and its name must determine the function."""
    if not tf.executing_eagerly():
        return function
    key = (function.__name__, *key)
    known = process(loaded("tensorflow")).of(_Compiled)
    if key not in known:
        known[key] = tf.function(function, reduce_retracing=True, autograph=False)
    compiled: Callable[[Any], Any] = known[key]
    return compiled


def _given_back(upstream: Any, call: Call) -> Any:
    """Return the gradient of the root's result on all ranks."""
    scale = call.about.gradient_scale()
    carried = tf.cast(upstream, _CARRIED_AS.get(upstream.dtype, upstream.dtype))
    with tf.device("CPU:0"), tf.name_scope("HorovodBroadcast/"):
        found = horovod.broadcast(
            carried,
            call.root_rank,
            name=f"HorovodBroadcast_{node_name(call.about.name)}.gradient",
            ignore_name_scope=True,
            process_set=call.process_set,
        )
    return tf.cast(found * tf.cast(scale, found.dtype), upstream.dtype)


def _reduced(tensor: Any, call: Call) -> Any:
    # Elastic training recognises failed operations by this word in their path.
    with tf.device("CPU:0"), tf.name_scope("HorovodAllreduce/"):
        # An index that TensorFlow cannot know: otherwise it would call the operation while it compiles, or drop it if
        # its values are unused.
        zero = tf.raw_ops.RandomUniformInt(shape=tf.zeros([0], tf.int32), minval=0, maxval=1, seed=1, seed2=1)
        carried = tf.cast(tensor, _CARRIED_AS.get(tensor.dtype, tensor.dtype))
        given = tf.reshape(tf.expand_dims(carried, zero), tf.shape(carried))
        found = horovod.allreduce(
            given,
            op=call.op,
            name=f"HorovodReduce{node_name(call.about.operation(on_cpu=True))}",
            prescale_factor=call.prescale_factor,
            postscale_factor=call.postscale_factor,
            process_set=call.process_set,
            ignore_name_scope=True,
        )
        if not call.about.at_root:
            nothing = tf.reshape(found, [-1])[:zero]
            found = tf.reshape(tf.concat([tf.reshape(carried, [-1]), nothing], 0), tf.shape(carried))
        result = tf.cast(found, tensor.dtype)
    result.set_shape(tensor.shape)
    return result
