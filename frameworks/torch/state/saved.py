"""Gradients in flight as they are saved (paceline.exchange.in_flight_state), from and to what PyTorch has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.wire import Array
from paceline.torch.state.structures import within

# Whose values another type holds, where NumPy has none of it.
HELD_IN = {torch.bfloat16: torch.float32}


def array_of(tensor: Tensor) -> Array:
    """A copy of a dense tensor as an array; bfloat16 as float32."""
    return np.array(tensor.detach().cpu().to(HELD_IN.get(tensor.dtype, tensor.dtype)).numpy())


def plain_of(value: Any) -> Any:
    """`value`, a structure of dicts, lists and tuples, with arrays in the place of tensors.

    Sparse tensors become dicts of indices, values and shape; bfloat16 becomes float32.
    """
    if isinstance(value, Tensor) and value.is_sparse:
        whole = value.coalesce()
        return {
            "indices": plain_of(whole.indices()),
            "values": plain_of(whole.values()),
            "shape": np.array(whole.shape, np.int64),
        }
    return array_of(value) if isinstance(value, Tensor) else within(value, plain_of)


def tensors(value: Any) -> Any:
    """`value` with tensors in the place of arrays, which share their memory: all that torch.load reads by default."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else within(value, tensors)


def from_plain(value: Any) -> Tensor:
    """Return the tensor that `plain_of` made an array of, or a dict if it is sparse."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    sparse: Mapping[str, Any] = value
    indices, values = torch.from_numpy(sparse["indices"]), torch.from_numpy(sparse["values"])
    shape = sparse["shape"].tolist()
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
