"""hvd.reduce and its in-place and asynchronous forms, like those of Horovod's broadcast."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from paceline.collectives.reduce_form import Call, form_of
from paceline.native.library import loaded
from paceline.native.world import world
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.state.transfer import put_back, to_reduce


class _Unnamed(Counter[int]):
    """Number of unnamed calls so far, by process set."""


def _automatic(process_set: Any) -> str:
    calls = world(loaded("torch")).of(_Unnamed)
    calls[process_set.process_set_id] += 1
    return f"unnamed.{calls[process_set.process_set_id] - 1}"


_form = form_of(horovod, _automatic)


@_form
def reduce(tensor: Tensor, call: Call) -> Tensor:
    """Combine the tensors of all ranks on `root_rank`; the other ranks return a copy of `tensor`, which is not changed.

    With a PACELINE_COLLECTIVE other than gloo, tensors in CPU memory pass once along a chain of ranks: half of an
    allreduce's bytes. Otherwise it is an allreduce.

    Args:
        tensor: of one shape and dtype on all ranks; need not be contiguous. bfloat16 is summed in float32.
        root_rank: rank among all ranks, as for hvd.broadcast.
        name: the same on all ranks, one call of a name at a time. None: all ranks make unnamed calls in the same order.
        op: hvd.Average, Sum, Min, Max or Product; factors as for hvd.allreduce.

    Returns:
        A tensor of the shape and dtype of `tensor`. The gradient of averages and sums is, on all ranks, the gradient of
            the root's result times the factors; all ranks call backward(). Gradients of the copies are dropped.

    Raises:
        UsageError: (a ValueError) the root is outside the process set, this rank is not in it, or the operation is
            another one.
        HorovodInternalError: a rank is lost.
    """
    result: Tensor = _Reduce.apply(tensor, call)
    return result


@_form
def reduce_async(tensor: Tensor, call: Call) -> int:
    """Start `reduce` and return a handle for hvd.synchronize and hvd.poll; without a gradient.

    `tensor`: contiguous, of a type that Horovod supports; ValueError otherwise.
    """
    output = torch.empty_like(tensor) if call.about.at_root else tensor.detach().clone()
    return _start(tensor, output, call)


@_form
def reduce_(tensor: Tensor, call: Call) -> Tensor:
    """Combine tensors as `reduce` does, in place on `root_rank`; other ranks keep theirs. Returns `tensor`.

    Accepts every type and memory layout that `reduce` accepts; without a gradient.
    """
    carried = to_reduce(tensor.detach())
    put_back(tensor, horovod.synchronize(_start(carried, carried, call)))
    return tensor


@_form
def reduce_async_(tensor: Tensor, call: Call) -> int:
    """Start `reduce_async` in place: `tensor` becomes the result on `root_rank` and does not change on other ranks."""
    return _start(tensor, tensor, call)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, call: Call) -> Tensor:
        """Return the result."""
        ctx.call = call
        carried = to_reduce(tensor)
        output = torch.empty_like(carried) if call.about.at_root else carried.clone()
        found: Tensor = horovod.synchronize(_start(carried, output, call))
        return found.to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Broadcast the root's gradient to all ranks."""
        about = ctx.call.about
        scale = about.gradient_scale()
        carried = to_reduce(gradients[0])
        found = horovod.broadcast(
            carried, ctx.call.root_rank, name=f"{about.name}.gradient", process_set=ctx.call.process_set
        )
        return (found * scale).to(gradients[0].dtype), None


def _start(tensor: Tensor, output: Tensor, call: Call) -> int:
    """Start the operation. synchronize() returns `output`; on other ranks than the root it is a copy already."""
    operations = horovod.mpi_ops
    target = output if call.about.at_root else torch.empty_like(tensor)
    name = call.about.operation(tensor.device.type == "cpu")
    handle: int = operations._allreduce_async(
        tensor, target, name, call.op, call.prescale_factor, call.postscale_factor, call.process_set
    )
    # The library writes to the target even if nobody uses it; synchronize() returns the last of these.
    operations._handle_map[handle] = (tensor, target, output)
    return handle
