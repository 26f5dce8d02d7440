"""torch.nn.utils.clip_grad_norm_ for sharded gradients, which only their owners hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.agreement import combined

if TYPE_CHECKING:
    from paceline.torch.optimizer.reduction import Reduction


def clip_shared_norm(
    reduction: Reduction,
    parameters: Sequence[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Clip by the total norm over all ranks. All ranks must call it with the same parameters.

    The ranks exchange the norm of every gradient, so the total equals that of one process.
    """
    # One row per parameter: the norm to the power of its order, and 1 if this rank has the gradient. If several ranks
    # have it, it is the same; for shards the powers are summed. For infinite order, the maximum is used.
    shards, largest = reduction.wire.of_shards, math.isinf(norm_type)
    power = 1.0 if largest or norm_type == 0 else norm_type
    rows = torch.zeros(len(parameters), 2, dtype=torch.float64)
    for number, one in enumerate(parameters):
        if one.grad is None:
            continue
        part = one in shards
        values = shards.gradient(one) if part else one.grad.coalesce().values() if one.grad.is_sparse else one.grad
        if values is not None:
            rows[number, 0] = torch._foreach_norm([values], norm_type)[0].double() ** power
        rows[number, 1] = 1.0 / reduction.wire.process_set.size() if part and not largest else 1.0
    name = f"{reduction.wire.label}.norms"
    found = combined(reduction.wire, name, rows, horovod.Max if largest else horovod.Sum)
    norms = [(total / count) ** (1.0 / power) for total, count in found if count]
    kind = next((one.grad.dtype for one in parameters if one.grad is not None), torch.get_default_dtype())
    total = torch.linalg.vector_norm(torch.tensor(norms, dtype=kind), norm_type) if norms else torch.tensor(0.0)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    torch.nn.utils.clip_grads_with_norm_(list(parameters), max_norm, total, foreach)
    return total
