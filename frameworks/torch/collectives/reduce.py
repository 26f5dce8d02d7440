"""hvd.reduce and its other forms, as Horovod's broadcast has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from paceline.collectives.reduce_form import Call, form_of
from paceline.native.library import loaded
from paceline.native.world import world
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.state.travelling import put_back, to_reduce


class _Unnamed(Counter[int]):
    """Unnamed calls so far, by process set."""


def _automatic(process_set: Any) -> str:
    calls = world(loaded("torch")).of(_Unnamed)
    calls[process_set.process_set_id] += 1
    return f"unnamed.{calls[process_set.process_set_id] - 1}"


_form = form_of(horovod, _automatic)


@_form
def reduce(tensor: Tensor, call: Call) -> Tensor:
    """What all ranks' tensors are combined to, on `root_rank`; on the others a copy of `tensor`, which stays as it is.

    With PACELINE_COLLECTIVE other than gloo and tensors in CPU memory it travels along a chain of ranks once, half of
    what an allreduce takes; else it is an allreduce.

    - `tensor`: of one shape and dtype on all ranks; also bfloat16, which is added up in float32, and not contiguous.
    - `root_rank`: among all ranks, as of hvd.broadcast.
    - `name`: the same on all ranks; one call of a name at a time. None: all ranks make unnamed calls in one order.
    - `op`: hvd.Average, Sum, Min, Max or Product; factors as of hvd.allreduce.

    Returns a tensor of the shape and dtype of `tensor`. The gradient, of averages and sums, is that of the root's
    result, times the factors, on all ranks, all of which call backward(); what flows into copies is dropped.

    Raises UsageError (a ValueError) for a root outside the process set, on ranks that are not in it and for other
    operations, HorovodInternalError when a rank is lost.
    """
    result: Tensor = _Reduce.apply(tensor, call)
    return result


@_form
def reduce_async(tensor: Tensor, call: Call) -> int:
    """As `reduce`, and return at once: a handle for hvd.synchronize and hvd.poll. Without a gradient.

    `tensor`: contiguous, of a type that Horovod carries; ValueError for others.
    """
    output = torch.empty_like(tensor) if call.about.at_root else tensor.detach().clone()
    return _start(tensor, output, call)


@_form
def reduce_(tensor: Tensor, call: Call) -> Tensor:
    """As `reduce`, but `tensor` becomes the result on `root_rank`; on the others it stays as it is. Returns it.

    Of any type and memory layout that `reduce` takes; without a gradient.
    """
    carried = to_reduce(tensor.detach())
    put_back(tensor, horovod.synchronize(_start(carried, carried, call)))
    return tensor


@_form
def reduce_async_(tensor: Tensor, call: Call) -> int:
    """As `reduce_async`, but the result on `root_rank` is written to `tensor`, which stays as it is on the others."""
    return _start(tensor, tensor, call)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, call: Call) -> Tensor:
        """Returns the result."""
        ctx.call = call
        carried = to_reduce(tensor)
        output = torch.empty_like(carried) if call.about.at_root else carried.clone()
        found: Tensor = horovod.synchronize(_start(carried, output, call))
        return found.to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The root's gradient goes to all ranks."""
        about = ctx.call.about
        scale = about.gradient_scale()
        carried = to_reduce(gradients[0])
        found = horovod.broadcast(
            carried, ctx.call.root_rank, name=f"{about.name}.gradient", process_set=ctx.call.process_set
        )
        return (found * scale).to(gradients[0].dtype), None


def _start(tensor: Tensor, output: Tensor, call: Call) -> int:
    """Start it; synchronize() gives `output`, which has the values of `tensor` already where this is not the root."""
    operations = horovod.mpi_ops
    target = output if call.about.at_root else torch.empty_like(tensor)
    name = call.about.operation(tensor.device.type == "cpu")
    handle: int = operations._allreduce_async(
        tensor, target, name, call.op, call.prescale_factor, call.postscale_factor, call.process_set
    )
    # The library writes to the target, whatever comes of that; synchronize() returns the last of these.
    operations._handle_map[handle] = (tensor, target, output)
    return handle
