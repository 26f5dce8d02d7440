"""hvd.reduce: an allreduce whose result one rank alone needs."""

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

# What Horovod's operations cannot carry travels as float32.
_CARRIED_AS = {tf.bfloat16: tf.float32}


class _Compiled(dict[tuple[Any, ...], Any]):
    """Graphs of calls that are made eagerly, where operations would have no names."""


@tf.autograph.experimental.do_not_convert
@form_of(horovod, lambda _: "unnamed")
def reduce(tensor: Any, call: Call) -> Any:
    """What all ranks' tensors are combined to, on `root_rank`; on the others a copy of `tensor`.

    With PACELINE_COLLECTIVE other than gloo it travels along a chain of ranks once, half of what an allreduce takes;
    else it is an allreduce. In CPU memory.

    Args:
        tensor: dense, of one shape and dtype on all ranks, also a variable; bfloat16 is added up in float32.
        root_rank: among all ranks, as of hvd.broadcast.
        name: the same on all ranks; one call of a name at a time. None: all ranks make unnamed calls in one order.
        op: hvd.Average, Sum, Min, Max or Product; factors as of hvd.allreduce.
        process_set: the ranks to combine over, all of which must make the call and, in a graph, use the result.

    Returns a tensor of the shape and dtype of `tensor`. The gradient, of averages and sums, is that of the root's
    result, times the factors, on all ranks, all of which compute it; what flows into copies is dropped.

    Raises UsageError (a ValueError) for a root outside the process set, on ranks that are not in it, for other
    operations and sparse tensors; tf.errors.OpError when a rank is lost.
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
    """`function`, which follows from its name and `key`, as one whose operations have names: in a graph."""
    if not tf.executing_eagerly():
        return function
    key = (function.__name__, *key)
    known = process(loaded("tensorflow")).of(_Compiled)
    if key not in known:
        known[key] = tf.function(function, reduce_retracing=True, autograph=False)
    compiled: Callable[[Any], Any] = known[key]
    return compiled


def _given_back(upstream: Any, call: Call) -> Any:
    """The gradient: the root's, on all ranks."""
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
    # Elastic training knows failed operations by this word in their path.
    with tf.device("CPU:0"), tf.name_scope("HorovodAllreduce/"):
        # A place that TensorFlow cannot know: else it would call the operation while it compiles, or leave it out where
        # its values are not used.
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
