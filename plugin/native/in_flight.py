"""What a pipelined exchange has in flight in one of Horovod's libraries, and where ranks meet."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.errors import UserError, ranks_lost
from paceline.native import exchanges
from paceline.native.interruptible import LOOK_S, interruptible
from paceline.native.library import ended, world
from paceline.native.prototypes import ERROR_BYTES, TensorDescription

# How long a rank waits for the others to do the same (drain, first exchange).
MEET_LIMIT_S = 60.0
# How long results in flight may take where somebody waits for all of them (drain, state_dict).
SETTLE_LIMIT_S = 300.0
# What to do where ranks do not meet.
SAME_EXCHANGE = "Give all ranks the same exchange, and call drain() or discard() on all of them after the same update."


class InFlight:
    """Results in flight in `library`, by the full name of an operation. Nothing here talks to other ranks."""

    def __init__(self, library: ctypes.CDLL, process_set_id: int) -> None:
        self._library = library
        self._set = process_set_id

    def settle(self, name: str, limit_s: float = SETTLE_LIMIT_S) -> int:
        """Wait until nothing of `name` travels; how many results are in flight. Raises RuntimeError with the reason."""
        error = ctypes.create_string_buffer(ERROR_BYTES)
        settle, place = self._library.horovod_paceline_pipelined_settle, (self._set, name.encode())
        slice_s = min(limit_s, LOOK_S)
        count = int(settle(*place, slice_s, error, ERROR_BYTES))
        if count < 0 and limit_s > slice_s:
            count = interruptible(lambda: int(settle(*place, limit_s - slice_s, error, ERROR_BYTES)))
        if count < 0:
            raise self.failure(error.value.decode(errors="replace"))
        return count

    def failure(self, reason: str) -> Exception:
        """A RuntimeError; where the world has ended, as elastic training waits for."""
        if ended(self._library):
            return ranks_lost(f"Rank {self.rank}: {reason}", "Start the job again, or train with hvd.elastic.")
        return RuntimeError(reason)

    def result(self, name: str, index: int, address: int, capacity_bytes: int) -> None:
        """Copy a result, the oldest being 0, to `address`. Raises IndexError if there is none of that size."""
        size = self._library.horovod_paceline_pipelined_result(self._set, name.encode(), index, address, capacity_bytes)
        if size != capacity_bytes:
            raise IndexError(f"{name} has no result {index} of {capacity_bytes} bytes in flight, found {size}")

    def array(self, name: str, index: int) -> np.ndarray[Any, Any]:
        """A copy of a result, the oldest being 0. Raises IndexError if there is none."""
        found = TensorDescription()
        if self._library.horovod_paceline_pipelined_describe(self._set, name.encode(), index, found) != 0:
            raise IndexError(f"{name} has no result {index} in flight")
        result = np.empty(found.shape, found.dtype)
        self.result(name, index, result.ctypes.data, result.nbytes)
        return result

    def put_array(self, name: str, result: np.ndarray[Any, Any]) -> None:
        """Add a result to a registered name, as if it had just been combined.

        Raises ValueError if K - 1 are in flight already.
        """
        whole = np.require(result, requirements="C")
        put = self._library.horovod_paceline_pipelined_put
        if put(self._set, name.encode(), TensorDescription.of(whole), whole.ctypes.data) != 0:
            raise ValueError(f"{name} has as many results in flight as it can have")

    def register(self, name: str, exchange: str, *settings: float) -> None:
        """See paceline.native.exchanges."""
        exchanges.register(self._library, self._set, name, exchange, *settings)

    def unregister(self, name: str) -> None:
        """See paceline.native.exchanges."""
        exchanges.unregister(self._library, self._set, name)

    def flush_next(self, name: str) -> None:
        """See paceline.native.exchanges."""
        exchanges.flush_next(self._library, self._set, name)

    def sync_next(self, name: str, calls: int) -> None:
        """The next `calls` calls of a registered name, and no others, are synchronous."""
        if self._library.horovod_paceline_pipelined_sync_next(self._set, name.encode(), calls) != 0:
            raise ValueError(f"{name} is not registered")

    @property
    def place(self) -> tuple[int, int]:
        """The library and the process set, by number."""
        return int(self._library._handle), self._set

    @property
    def world(self) -> object:
        """See attach.world."""
        return world(self._library)

    @property
    def rank(self) -> int:
        """This process's, among all."""
        return int(self._library.horovod_rank())

    def release(self, name: str, limit_s: float) -> bool:
        """Drop all of `name` when nothing of it travels any more, or after so long; with a limit of 0 only if so.

        Whether it was dropped.
        """
        try:
            self.settle(name, limit_s)
        except RuntimeError:
            if limit_s == 0:
                return False
        self.drop(name)
        return True

    def drop(self, name: str) -> None:
        """Forget all of `name`, as if no call had been made; what travels arrives nowhere."""
        self._library.horovod_paceline_pipelined_drop(self._set, name.encode())

    def meet(self, name: str, values: list[int], meaning: str, remedy: str = SAME_EXCHANGE) -> None:
        """Wait for all ranks to call this with the same `values`, which are `meaning`.

        Raises UserError with the reason and `remedy`: some do not within MEET_LIMIT_S, or have other values. Where the
        world has ended it is a HorovodInternalError, too.
        """
        least, most, reason = self._agree(name, values)
        if reason:
            kind = ranks_lost if ended(self._library) else UserError
            raise kind(f"Rank {self.rank} waited for all ranks at {name} ({meaning}: {values}): {reason}", remedy)
        if least != most:
            raise UserError(
                f"The ranks differ at {name}: {meaning} are from {least} to {most}; rank {self.rank} has {values}.",
                remedy,
            )

    def least_and_most(self, name: str, values: Sequence[int]) -> list[tuple[int, int]]:
        """Over all ranks, which call this with equally many `values`; [] if they do not, or one is lost."""
        least, most, reason = self._agree(name, values)
        return [] if reason else list(zip(least, most, strict=True))

    def _agree(self, name: str, values: Sequence[int]) -> tuple[list[int], list[int], str]:
        count = len(values)
        own, least, most = ((ctypes.c_int64 * count)(*values) for _ in range(3))
        error = ctypes.create_string_buffer(ERROR_BYTES)
        agree, place = self._library.horovod_paceline_agree_min_max, (self._set, name.encode(), count)
        met = interruptible(lambda: agree(*place, own, least, most, MEET_LIMIT_S, error, ERROR_BYTES))
        return list(least), list(most), error.value.decode(errors="replace") if met != 0 else ""

    def clear(self, name: str) -> None:
        """Nothing of `name` is in flight any more; only after `settle`."""
        self._library.horovod_paceline_pipelined_clear(self._set, name.encode())
