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

    A number gives a number, a tensor one of its shape, type and device; it is computed in float64. All ranks must call
    it, those without data with the weight 0. If all have 0, the result is NaN. `name`: of the operation; means that may
    travel at the same time need different names.

    Raises UsageError for a weight that is negative or not finite.
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
