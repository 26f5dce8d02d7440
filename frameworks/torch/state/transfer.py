"""Conversion of tensors that Horovod does not support into tensors that it does.

Horovod's operations need contiguous tensors of certain types. Tensors that are only copied are sent as integers of the
same bits. Tensors that are summed are sent in a type that holds all their values.
"""

from __future__ import annotations

import torch
from torch import Tensor

CARRIED = frozenset(
    getattr(torch, name) for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)
# Types that Horovod cannot sum are submitted in a type that holds all their values. A codec reduces them to two bytes
# again where our own collectives are in use (Choice.bfloat16).
TRANSFER_DTYPE = {torch.bfloat16: torch.float32}
# Types of weights that can be averaged.
AVERAGED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_SAME_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def carried(tensor: Tensor) -> bool:
    """Return True if Horovod takes `tensor` as it is, or refuses it for a reason not handled here."""
    return tensor.layout != torch.strided or tensor.is_quantized or (
        tensor.dtype in CARRIED and tensor.is_contiguous()
    )  # fmt: skip


def to_copy(tensor: Tensor) -> Tensor:
    """Return the tensor to send for `tensor` where values are only copied.

    It is `tensor` itself or a contiguous tensor of the same bits. It shares memory with `tensor`, or is a copy for
    `put_back`.
    """
    if carried(tensor):
        return tensor
    whole = tensor.detach().contiguous()
    if whole.dtype in CARRIED:
        return whole
    if whole.is_complex():
        whole = torch.view_as_real(whole.resolve_conj())
    return whole if whole.dtype in CARRIED else whole.view(_SAME_BITS[whole.itemsize])


def to_reduce(tensor: Tensor) -> Tensor:
    """Return the tensor to send for `tensor` where values are summed; see `to_copy`."""
    return tensor.to(TRANSFER_DTYPE.get(tensor.dtype, tensor.dtype)).contiguous()


def put_back(tensor: Tensor, received: Tensor) -> None:
    """Copy the received values into `tensor`."""
    if received.data_ptr() == tensor.data_ptr():
        return
    with torch.no_grad():
        if received.dtype in (tensor.dtype, TRANSFER_DTYPE.get(tensor.dtype)):
            tensor.copy_(received)
        elif tensor.is_complex():
            tensor.copy_(torch.view_as_complex(received))
        else:
            tensor.copy_(received.view(tensor.dtype))
