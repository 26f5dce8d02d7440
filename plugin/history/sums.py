"""Checksums of a tensor: a hash, and sums that prove a reduction.

A hash shows that two ranks hold the same tensor. It cannot show that a tensor is the sum of others. The sums here are
linear: those of a reduced tensor equal the added sums of the contributions, up to rounding. `plain` weighs all elements
alike, `placed` gives each element a weight by its position, so that elements in the wrong place are found, too.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import msgspec
import numpy as np

Array = np.ndarray[Any, Any]

# Positions repeat their weights with this period: a prime, so that the shards of a ring do not begin at a multiple.
PERIOD = 1021
_SEED = 20180


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """Checksums of one tensor.

    Attributes:
        hash: CRC-32 of the bytes.
        plain: sum of the elements, in float64; NaN is written as null.
        placed: sum of the elements times the weights of their positions.
        size: sum of the absolute values, which bounds rounding errors.
        count: number of elements.
    """

    hash: int
    plain: float | None
    placed: float | None
    size: float | None
    count: int

    @property
    def finite(self) -> bool:
        """True if no element is NaN or infinite."""
        return self.size is not None


@cache
def _weights() -> Array:
    return np.random.default_rng(_SEED).uniform(-1.0, 1.0, PERIOD)


def sums_of(array: Array, before: int = 0) -> Sums:
    """Return the checksums of an array. `before`: number of elements before it in the tensor of which it is a part."""
    flat = np.ascontiguousarray(array).reshape(-1)
    hashed = hash_of(flat)
    columns = _columns(flat)
    if columns is None:
        return Sums(hashed, None, None, None, flat.size)
    weights = np.roll(_weights(), -before) if before % PERIOD else _weights()
    size = float(np.abs(flat).sum(dtype=np.float64))
    return Sums(hashed, float(columns.sum()), float(columns @ weights), size, flat.size)


def hash_of(array: Array) -> int:
    """Return the CRC-32 of the bytes of an array."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if array.size else 0


def _columns(flat: Array) -> Array | None:
    """Return the sums of all elements at the same place of a period; None unless they are finite."""
    whole = flat.size // PERIOD * PERIOD
    with np.errstate(all="ignore"):
        columns = flat[:whole].reshape(-1, PERIOD).sum(axis=0, dtype=np.float64)
        columns[: flat.size - whole] += flat[whole:]
        return columns if bool(np.isfinite(columns).all()) else None


def array_of(tensor: Any) -> Array:
    """Return the values of a tensor of any framework as an array, without a copy where its memory allows that.

    bfloat16 becomes float32; a sparse tensor becomes the array of its values.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()
        if tensor.is_sparse:
            tensor = tensor.coalesce().values()
        return np.asarray((tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).cpu().numpy())
    found = np.asarray(tensor)
    return found if found.dtype.kind in "fiub" else found.astype(np.float32)
