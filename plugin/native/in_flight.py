"""Results in flight of a pipelined exchange in one of Horovod's libraries."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from paceline.errors import ranks_lost
from paceline.native import exchanges
from paceline.native.interruptible import LOOK_S, interruptible
from paceline.native.library import ended
from paceline.native.prototypes import ERROR_BYTES, TensorDescription
from paceline.native.world import Process, process

# Timeout for results in flight where a caller waits for all of them (drain, state_dict).
SETTLE_LIMIT_S = 300.0


class InFlight:
    """Results in flight in `library`, by the full name of an operation. Nothing here communicates."""

    def __init__(self, library: ctypes.CDLL, process_set_id: int) -> None:
        self._library = library
        self.process_set_id = process_set_id

    def settle(self, name: str, limit_s: float = SETTLE_LIMIT_S) -> int:
        """Wait until nothing of `name` is in transit, and return the number of results.

        Raises RuntimeError with the reason of a failure.
        """
        error = ctypes.create_string_buffer(ERROR_BYTES)
        settle, place = self._library.horovod_paceline_pipelined_settle, (self.process_set_id, name.encode())
        slice_s = min(limit_s, LOOK_S)
        count = int(settle(*place, slice_s, error, ERROR_BYTES))
        if count < 0 and limit_s > slice_s:
            count = interruptible(lambda: int(settle(*place, limit_s - slice_s, error, ERROR_BYTES)))
        if count < 0:
            raise self.failure(error.value.decode(errors="replace"))
        return count

    def failure(self, reason: str) -> Exception:
        """Return a RuntimeError; if the world has ended, the error that elastic training catches."""
        if ended(self._library):
            return ranks_lost(f"Rank {self.rank}: {reason}", "Start the job again, or train with hvd.elastic.")
        return RuntimeError(reason)

    def result(self, name: str, index: int, address: int, capacity_bytes: int) -> None:
        """Copy a result (0: the oldest) to `address`. Raises IndexError if there is none of that size."""
        size = self._library.horovod_paceline_pipelined_result(
            self.process_set_id, name.encode(), index, address, capacity_bytes
        )
        if size != capacity_bytes:
            raise IndexError(f"{name} has no result {index} of {capacity_bytes} bytes in flight, found {size}")

    def array(self, name: str, index: int) -> np.ndarray[Any, Any]:
        """Return a copy of a result (0: the oldest). Raises IndexError if there is none."""
        found = TensorDescription()
        if self._library.horovod_paceline_pipelined_describe(self.process_set_id, name.encode(), index, found) != 0:
            raise IndexError(f"{name} has no result {index} in flight")
        result = np.empty(found.shape, found.dtype)
        self.result(name, index, result.ctypes.data, result.nbytes)
        return result

    def put_array(self, name: str, result: np.ndarray[Any, Any]) -> None:
        """Add a result to a registered name, as if it had just been combined.

        Raises ValueError if K - 1 results are in flight already.
        """
        whole = np.require(result, requirements="C")
        put = self._library.horovod_paceline_pipelined_put
        if put(self.process_set_id, name.encode(), TensorDescription.of(whole), whole.ctypes.data) != 0:
            raise ValueError(f"{name} has as many results in flight as it can have")

    def register(self, name: str, exchange: str, *settings: float) -> None:
        """Register `name` with an exchange (paceline.native.exchanges)."""
        exchanges.register(self._library, self.process_set_id, name, exchange, *settings)

    def unregister(self, name: str) -> None:
        """Make `name` a plain allreduce again (paceline.native.exchanges)."""
        exchanges.unregister(self._library, self.process_set_id, name)

    def flush_next(self, name: str) -> None:
        """Make the next call of `name` a flush (paceline.native.exchanges)."""
        exchanges.flush_next(self._library, self.process_set_id, name)

    def sync_next(self, name: str, calls: int) -> None:
        """Make exactly the next `calls` calls of a registered name synchronous."""
        if self._library.horovod_paceline_pipelined_sync_next(self.process_set_id, name.encode(), calls) != 0:
            raise ValueError(f"{name} is not registered")

    @property
    def process(self) -> Process:
        """Objects kept for the library in this process (paceline.native.world)."""
        return process(self._library)

    @property
    def rank(self) -> int:
        """This process's rank among all ranks."""
        return int(self._library.horovod_rank())

    def release(self, name: str, limit_s: float) -> bool:
        """Drop all of `name` once nothing of it is in transit, or after `limit_s`; with 0, only if nothing is.

        Returns True if it was dropped.
        """
        try:
            self.settle(name, limit_s)
        except RuntimeError:
            if limit_s == 0:
                return False
        self.drop(name)
        return True

    def drop(self, name: str) -> None:
        """Drop all of `name`, as if no call had been made; a result in transit is discarded on arrival."""
        self._library.horovod_paceline_pipelined_drop(self.process_set_id, name.encode())

    def clear(self, name: str) -> None:
        """Remove the results of `name`; only after `settle`."""
        self._library.horovod_paceline_pipelined_clear(self.process_set_id, name.encode())
