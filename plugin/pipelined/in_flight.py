"""What a pipelined exchange has in flight in one of Horovod's libraries, and where ranks meet."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from paceline.errors import UserError
from paceline.native.library import DTYPES, world

# How long a rank waits for the others to do the same (drain, first exchange).
MEET_LIMIT_S = 60.0
# How long results in flight may take where somebody waits for all of them (drain, state_dict).
SETTLE_LIMIT_S = 300.0
_ERROR_BYTES = 4096
MOST_DIMS = 16


class InFlight:
    """Results in flight in `library`, by the full name of the marked call. Nothing here talks to other ranks."""

    def __init__(self, library: ctypes.CDLL, process_set_id: int) -> None:
        self._library = library
        self._set = process_set_id
        library.horovod_paceline_pipelined_settle.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_double, ctypes.c_char_p, ctypes.c_int64,
        ]  # fmt: skip
        library.horovod_paceline_pipelined_result.restype = ctypes.c_int64
        library.horovod_paceline_pipelined_result.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64,
        ]  # fmt: skip
        library.horovod_paceline_pipelined_describe.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
        ]  # fmt: skip
        library.horovod_paceline_pipelined_meet.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_double, ctypes.c_char_p, ctypes.c_int64,
        ]  # fmt: skip
        library.horovod_paceline_pipelined_drop.argtypes = [ctypes.c_char_p, ctypes.c_int32]
        library.horovod_paceline_pipelined_clear.argtypes = [ctypes.c_char_p, ctypes.c_int32]
        library.horovod_paceline_pipelined_put.argtypes = [
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p,
        ]  # fmt: skip

    def settle(self, name: str, limit_s: float = SETTLE_LIMIT_S) -> int:
        """Wait until nothing of `name` travels; how many results are in flight. Raises RuntimeError with the reason."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        settle = self._library.horovod_paceline_pipelined_settle
        count = int(settle(name.encode(), self._set, limit_s, error, _ERROR_BYTES))
        if count < 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        return count

    def result(self, name: str, index: int, address: int, capacity_bytes: int) -> None:
        """Copy a result, the oldest being 0, to `address`. Raises IndexError if there is none of that size."""
        size = self._library.horovod_paceline_pipelined_result(name.encode(), self._set, index, address, capacity_bytes)
        if size != capacity_bytes:
            raise IndexError(f"{name} has no result {index} of {capacity_bytes} bytes in flight, found {size}")

    def array(self, name: str, index: int) -> np.ndarray[Any, Any]:
        """A copy of a result, the oldest being 0. Raises IndexError if there is none."""
        dims, dtype = (ctypes.c_int64 * MOST_DIMS)(), ctypes.c_int32()
        count = self._library.horovod_paceline_pipelined_describe(
            name.encode(), self._set, index, dims, MOST_DIMS, ctypes.byref(dtype)
        )
        if count < 0:
            raise IndexError(f"{name} has no result {index} in flight")
        result = np.empty(dims[:count], DTYPES[dtype.value])
        self.result(name, index, result.ctypes.data, result.nbytes)
        return result

    def put_array(self, name: str, result: np.ndarray[Any, Any]) -> None:
        """Add a result, as `put`."""
        whole = np.require(result, requirements="C")
        self.put(name, horovod_dtype(whole.dtype.name), whole.shape, whole.ctypes.data)

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
        self._library.horovod_paceline_pipelined_drop(name.encode(), self._set)

    def meet(self, name: str, values: list[int], meaning: str) -> None:
        """Wait for all ranks to call this with the same `values`, which are `meaning`.

        Raises UserError with the reason: some do not within MEET_LIMIT_S, or have other values.
        """
        count = len(values)
        own, least, most = ((ctypes.c_int64 * count)(*values) for _ in range(3))
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        met = self._library.horovod_paceline_pipelined_meet(
            name.encode(), self._set, count, own, least, most, MEET_LIMIT_S, error, _ERROR_BYTES
        )
        remedy = "Give all ranks the same exchange, and call drain() or discard() on all of them after the same update."
        if met != 0:
            reason = error.value.decode(errors="replace")
            raise UserError(f"Rank {self.rank} waited for all ranks at {name} ({meaning}: {values}): {reason}", remedy)
        if list(least) != list(most):
            raise UserError(
                f"The ranks differ at {name}: {meaning} are from {list(least)} to {list(most)}; "
                f"rank {self.rank} has {values}.",
                remedy,
            )

    def clear(self, name: str) -> None:
        """Nothing of `name` is in flight any more; only after `settle`."""
        self._library.horovod_paceline_pipelined_clear(name.encode(), self._set)

    def put(self, name: str, dtype: int, shape: tuple[int, ...], address: int) -> None:
        """Add a result, as if it had just been combined. Raises ValueError if K - 1 are in flight already."""
        dims = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        put = self._library.horovod_paceline_pipelined_put
        if put(name.encode(), self._set, dtype, dims, len(shape), address) != 0:
            raise ValueError(f"{name} has as many results in flight as it can have")


def horovod_dtype(numpy_name: str) -> int:
    """Horovod's number of a type (common.h: DataType)."""
    return DTYPES.index(numpy_name)
