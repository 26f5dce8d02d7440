"""What travels for a parameter, and what becomes of the result."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.torch.optimizer.layouts import DENSE
from paceline.torch.optimizer.member import Member
from paceline.torch.state.travelling import TRAVELS_AS


def outgoing(member: Member, always_dense: bool) -> Tensor:
    """The member's gradient, in the layout that all ranks use, in a type that Horovod carries; zeros if it has none."""
    parameter = member.parameter
    gradient = parameter.grad
    dims = DENSE if always_dense or member.sparse_dims is None else member.sparse_dims
    if gradient is None and dims != DENSE:
        gradient = _no_rows(parameter, dims)
    elif gradient is None:
        gradient = parameter.grad = torch.zeros_like(parameter)
    elif gradient.is_sparse and dims == DENSE:
        gradient = gradient.to_dense()
    elif not gradient.is_sparse and dims != DENSE:
        gradient = gradient.to_sparse(dims)
    if gradient.dtype in TRAVELS_AS:
        gradient = gradient.to(TRAVELS_AS[gradient.dtype])
    return gradient if gradient.is_sparse else gradient.contiguous()


def store(member: Member, result: Tensor | None) -> None:
    """Make `result` the member's gradient; None: it has none."""
    parameter = member.parameter
    gradient = parameter.grad
    if gradient is result:
        return
    if result is None:
        parameter.grad = None
        return
    dims = member.sparse_dims
    # What was in flight comes from CPU memory, wherever the parameter is.
    # Unknown only where a run goes on and brings out what was in flight before its first step.
    if dims is None:
        dims = result.sparse_dim() if result.is_sparse else DENSE
    if dims != DENSE:
        sparse = result if result.is_sparse else result.to_sparse(dims)
        parameter.grad = sparse.to(parameter.device, parameter.dtype)
    elif gradient is None or gradient.is_sparse:
        parameter.grad = result.to(parameter.device, parameter.dtype)
    else:
        gradient.copy_(result)


def part(started: list[Member], missing: list[Member]) -> None:
    """Give those in `missing` a gradient of their own where a script stored one tensor as that of several."""
    taken = {member.parameter.grad.data_ptr() for member in started if _has_dense(member)}
    for member in missing:
        if _has_dense(member):
            if member.parameter.grad.data_ptr() in taken:
                member.parameter.grad = member.parameter.grad.clone()
            taken.add(member.parameter.grad.data_ptr())


def _no_rows(parameter: Tensor, sparse_dims: int) -> Tensor:
    """A sparse gradient of the shape of `parameter` without a single row."""
    return torch.sparse_coo_tensor(
        torch.empty((sparse_dims, 0), dtype=torch.int64, device=parameter.device),
        torch.empty((0, *parameter.shape[sparse_dims:]), dtype=parameter.dtype, device=parameter.device),
        parameter.shape,
        check_invariants=False,
    )


def _has_dense(member: Member) -> bool:
    gradient = member.parameter.grad
    return gradient is not None and gradient.layout == torch.strided and gradient.numel() > 0
