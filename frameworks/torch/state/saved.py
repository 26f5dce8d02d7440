"""Conversion of gradients in flight between PyTorch and their saved form (paceline.exchange.in_flight_state)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.wire import Array
from paceline.torch.state.structures import within

# Types that NumPy lacks, and the type that holds their values.
HELD_IN = {torch.bfloat16: torch.float32}


def array_of(tensor: Tensor) -> Array:
    """Copy a dense tensor to an array; bfloat16 as float32."""
    return np.array(tensor.detach().cpu().to(HELD_IN.get(tensor.dtype, tensor.dtype)).numpy())


def plain_of(value: Any) -> Any:
    """Return `value`, a structure of dicts, lists and tuples, with arrays in place of tensors.

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
    """Return `value` with tensors in place of arrays, sharing memory: torch.load reads only such states by default."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else within(value, tensors)


def from_plain(value: Any) -> Tensor:
    """Return the tensor for an array of `plain_of`, or for its dict of a sparse tensor."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    sparse: Mapping[str, Any] = value
    indices, values = torch.from_numpy(sparse["indices"]), torch.from_numpy(sparse["values"])
    shape = sparse["shape"].tolist()
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
