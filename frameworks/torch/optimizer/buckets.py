"""Which small gradients travel as one tensor.

An operation of Horovod costs each rank some 60 us of computing, whatever its size; that of one tensor for a bucket of
gradients costs that once, and each gradient a copy.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.torch.optimizer.member import Member

# A bucket goes when its last gradient is there: it ends when so many bytes of gradients have appeared since its first,
# its own and those between, so that the first does not wait for long.
SPAN_BYTES = 1 << 20
_TYPES = (torch.float16, torch.float32, torch.float64)


def fits(parameter: Tensor, most_bytes: int) -> bool:
    """Whether dense gradients of `parameter` may travel in a bucket: of so many bytes at most, in CPU memory."""
    return (
        parameter.nbytes <= most_bytes
        and parameter.dtype in _TYPES
        and type(parameter.data) is Tensor
        and parameter.layout == torch.strided
        and parameter.device.type == "cpu"
        and parameter.is_contiguous()
        and parameter.numel() > 0
    )


def form_buckets(members: Sequence[Member], small: set[Member]) -> list[list[Member]]:
    """Those in `small`, of which buckets have two and more, in the order of the backward pass: from the last one on.

    `members`: all, in the order of the parameter groups.
    """
    made: list[list[Member]] = []
    open_by_type: dict[torch.dtype, list[Member]] = {}
    span_bytes = 0
    for member in reversed(members):
        if span_bytes + member.parameter.nbytes > SPAN_BYTES:
            made += open_by_type.values()
            open_by_type, span_bytes = {}, 0
        span_bytes += member.parameter.nbytes
        if member in small:
            open_by_type.setdefault(member.parameter.dtype, []).append(member)
    made += open_by_type.values()
    return [bucket for bucket in made if len(bucket) > 1]


def digest(members: Sequence[Member], small: set[Member]) -> int:
    """A number that ranks share if they would form the same buckets of `small`, whichever are sparse; 0: none."""
    if not small:
        return 0
    described = [
        (member.name, tuple(member.parameter.shape), str(member.parameter.dtype), member in small) for member in members
    ]
    return (zlib.crc32(repr(described).encode()) >> 1) or 1
