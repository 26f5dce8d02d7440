"""Tensors that Horovod does not take as they are, in a form that it does.

Horovod's operations want contiguous tensors of types that it knows. Values that are only copied travel as what has the
same bits; values that are added up travel in a type that holds them all.
"""

from __future__ import annotations

import torch
from torch import Tensor

CARRIED = frozenset(
    getattr(torch, name) for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)
# What Horovod cannot add up is handed in in a type that holds all its values; a codec makes it two bytes again where
# our own collectives are in use (Choice.bfloat16).
TRAVELS_AS = {torch.bfloat16: torch.float32}
# Types of weights that have a mean.
AVERAGED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_SAME_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def carried(tensor: Tensor) -> bool:
    """Whether Horovod takes `tensor` as it is, or refuses it for a reason that is not looked after here."""
    return tensor.layout != torch.strided or tensor.is_quantized or (
        tensor.dtype in CARRIED and tensor.is_contiguous()
    )  # fmt: skip


def to_copy(tensor: Tensor) -> Tensor:
    """What travels for `tensor` where values are only copied: itself, or a contiguous tensor of the same bits.

    It shares memory with `tensor` or is a copy that `put_back` takes.
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
    """What travels for `tensor` where values are added up; see `to_copy`."""
    return tensor.to(TRAVELS_AS.get(tensor.dtype, tensor.dtype)).contiguous()


def put_back(tensor: Tensor, travelled: Tensor) -> None:
    """Give `tensor` the values of what travelled for it."""
    if travelled.data_ptr() == tensor.data_ptr():
        return
    with torch.no_grad():
        if travelled.dtype in (tensor.dtype, TRAVELS_AS.get(tensor.dtype)):
            tensor.copy_(travelled)
        elif tensor.is_complex():
            tensor.copy_(torch.view_as_complex(travelled))
        else:
            tensor.copy_(travelled.view(tensor.dtype))
