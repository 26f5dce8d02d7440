"""Weighted means of metrics over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.means import NAME, weighted_mean
from paceline.torch.horovod import horovod_torch as horovod


def mean(value: Any, weight: Any = 1, name: str = NAME, process_set: Any = horovod.global_process_set) -> Any:
    """Return the mean of `value` over the ranks, sum(w v) / sum(w), such as that of a loss over samples.

    The mean is computed in float64. All ranks must make the call, ranks without data with weight 0.

    Args:
        value: a number, or a tensor.
        weight: weight of this rank; finite, at least 0.
        name: name of the operation; means that may be in flight at the same time need different names.
        process_set: the ranks to average over.

    Returns:
        A number for a number; for a tensor, one of its shape, type and device. NaN if all weights are 0.

    Raises:
        UsageError: the weight is negative or not finite.
    """

    def average(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        tensor = torch.from_numpy(values)
        found: Tensor = horovod.allreduce(tensor, op=horovod.Average, name=name, process_set=process_set)
        return found.numpy()

    given = value.detach().cpu().double().numpy() if isinstance(value, Tensor) else value
    found = weighted_mean(average, given, weight)
    if isinstance(value, Tensor):
        return torch.from_numpy(found).to(value.device, value.dtype)
    return found.item() if found.ndim == 0 else found
