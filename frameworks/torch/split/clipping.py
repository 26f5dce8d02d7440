"""torch.nn.utils.clip_grad_norm_ where each rank has the gradients of its own parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

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
    """As clip_grad_norm_, with the norm of all ranks' gradients: all ranks must call it with the same parameters.

    The ranks tell each other the norm of every gradient; so the norm of all is, to the last bit, that of one process.
    """
    # A row per parameter: its gradient's norm, and whether there is one. Those of one optimizer have one owner each,
    # or are the same on all ranks.
    rows = torch.zeros(len(parameters), 2, dtype=torch.float64)
    for number, one in enumerate(parameters):
        if one.grad is not None:
            values = one.grad.coalesce().values() if one.grad.is_sparse else one.grad
            rows[number, 0], rows[number, 1] = torch._foreach_norm([values], norm_type)[0].double(), 1.0
    found = reduction.wire.summed(rows, "norms")
    norms = [total / count for total, count in found.tolist() if count]
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
