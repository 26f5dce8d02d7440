"""Residuals of encoded operations, which Horovod's library keeps by name (bridge/collectives)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

Residual = np.ndarray[Any, np.dtype[np.float32]]


def residual(library: ctypes.CDLL, process_set_id: int, name: str) -> Residual | None:
    """Return a flat copy of the residual of `name`; None if there is none."""
    get = library.horovod_paceline_residual_get
    count = get(name.encode(), process_set_id, None, 0)
    while count >= 0:
        values = np.empty(count, np.float32)
        found = get(name.encode(), process_set_id, values.ctypes.data, count)
        if found == count:
            return values
        count = found  # a gradient of another size was encoded in between
    return None


def put_residual(library: ctypes.CDLL, process_set_id: int, name: str, values: Residual | None) -> None:
    """Add `values`, as returned by `residual`, to the next gradient of `name`; None: drop its residual.

    A gradient with another number of elements drops them.
    """
    if values is None:
        library.horovod_paceline_residual_put(name.encode(), process_set_id, None, 0)
        return
    whole = np.ascontiguousarray(values, np.float32)
    library.horovod_paceline_residual_put(name.encode(), process_set_id, whole.ctypes.data, whole.size)
