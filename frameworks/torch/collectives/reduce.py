"""hvd.reduce and its other forms, as Horovod's broadcast has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.collectives.reduce import Reduce, check
from paceline.native.library import loaded, world
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.state.travelling import put_back, to_reduce

# Unnamed calls so far, in this world, by process set.
_unnamed: dict[int, tuple[object, int]] = {}


def reduce(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = horovod.Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = horovod.global_process_set,
) -> Tensor:
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
    name = name or _automatic(process_set)
    about = check(horovod, name, root_rank, op, prescale_factor, postscale_factor, process_set)
    result: Tensor = _Reduce.apply(tensor, about, root_rank, op, prescale_factor, postscale_factor, process_set)
    return result


def reduce_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = horovod.Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = horovod.global_process_set,
) -> int:
    """As `reduce`, and return at once: a handle for hvd.synchronize and hvd.poll. Without a gradient.

    `tensor`: contiguous, of a type that Horovod carries; ValueError for others.
    """
    name = name or _automatic(process_set)
    about = check(horovod, name, root_rank, op, prescale_factor, postscale_factor, process_set)
    output = torch.empty_like(tensor) if about.at_root else tensor.detach().clone()
    return _start(tensor, output, about, op, prescale_factor, postscale_factor, process_set)


def reduce_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = horovod.Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = horovod.global_process_set,
) -> Tensor:
    """As `reduce`, but `tensor` becomes the result on `root_rank`; on the others it stays as it is. Returns it.

    Of any type and memory layout that `reduce` takes; without a gradient.
    """
    carried = to_reduce(tensor.detach())
    handle = reduce_async_(carried, root_rank, name, op, prescale_factor, postscale_factor, process_set)
    put_back(tensor, horovod.synchronize(handle))
    return tensor


def reduce_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    op: int = horovod.Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = horovod.global_process_set,
) -> int:
    """As `reduce_async`, but the result on `root_rank` is written to `tensor`, which stays as it is on the others."""
    name = name or _automatic(process_set)
    about = check(horovod, name, root_rank, op, prescale_factor, postscale_factor, process_set)
    return _start(tensor, tensor, about, op, prescale_factor, postscale_factor, process_set)


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, about: Reduce, root_rank: int, op: int, before: float, after: float, process_set: Any
    ) -> Tensor:
        """Returns the result."""
        ctx.about, ctx.root_rank, ctx.process_set = about, root_rank, process_set
        carried = to_reduce(tensor)
        output = torch.empty_like(carried) if about.at_root else carried.clone()
        handle = _start(carried, output, about, op, before, after, process_set)
        found: Tensor = horovod.synchronize(handle)
        return found.to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The root's gradient goes to all ranks."""
        scale = ctx.about.gradient_scale()
        carried = to_reduce(gradients[0])
        name = f"{ctx.about.name}.gradient"
        found = horovod.broadcast(carried, ctx.root_rank, name=name, process_set=ctx.process_set)
        return (found * scale).to(gradients[0].dtype), *[None] * 6


def _start(
    tensor: Tensor, output: Tensor, about: Reduce, op: int, before: float, after: float, process_set: Any
) -> int:
    """Start it; synchronize() gives `output`, which has the values of `tensor` already where this is not the root."""
    operations = horovod.mpi_ops
    target = output if about.at_root else torch.empty_like(tensor)
    operation = about.operation(tensor.device.type == "cpu")
    handle: int = operations._allreduce_async(tensor, target, operation, op, before, after, process_set)
    # The library writes to the target, whatever comes of that; synchronize() returns the last of these.
    operations._handle_map[handle] = (tensor, target, output)
    return handle


def _automatic(process_set: Any) -> str:
    here = world(loaded("torch"))
    known, count = _unnamed.get(process_set.process_set_id, (None, 0))
    count = count if known is here else 0
    _unnamed[process_set.process_set_id] = here, count + 1
    return f"unnamed.{count}"
