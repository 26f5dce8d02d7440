"""What Horovod's library knows of codecs, without ranks."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

_handles = itertools.count(-1, -1)


class Library:
    """Stands in for a library: what names were told, and their residuals."""

    def __init__(self) -> None:
        self._handle = next(_handles)
        self.residuals: dict[tuple[str, int], np.ndarray] = {}

    def horovod_paceline_residual_get(self, name: bytes, process_set: int, values: int | None, count: int) -> int:
        found = self.residuals.get((name.decode(), process_set))
        if found is None:
            return -1
        if values is not None and count >= found.size:
            ctypes.memmove(values, found.ctypes.data, found.nbytes)
        return int(found.size)

    def horovod_paceline_residual_put(self, name: bytes, process_set: int, values: int | None, count: int) -> None:
        array = np.empty(count, np.float32)
        if values is not None:
            ctypes.memmove(array.ctypes.data, values, array.nbytes)
        self.residuals[name.decode(), process_set] = array
        if not array.size:
            del self.residuals[name.decode(), process_set]


class ProcessSet:
    def __init__(self, process_set_id: int = 0, rank: int = 0) -> None:
        self.process_set_id = process_set_id
        self._rank = rank

    def rank(self) -> int:
        return self._rank
