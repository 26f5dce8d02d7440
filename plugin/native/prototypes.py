"""Types of Paceline's C entry points in Horovod's library (plugin/bridge: api.cc, c_api.cc, exchanges.cc)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Index: Horovod's number of a type (common.h: DataType).
DTYPES = (
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool",
)  # fmt: skip
# Size of the buffer for an error text.
ERROR_BYTES = 4096
_MOST_DIMS = 16


class TensorDescription(Structure):
    """A tensor's type and shape, laid out as in bridge/description.h."""

    _fields_ = (("_dtype", c_int32), ("_count", c_int32), ("_dims", c_int64 * _MOST_DIMS))

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> TensorDescription:
        """Describe an array. Raises ValueError for a type that Horovod does not have, or too many dimensions."""
        if array.ndim > _MOST_DIMS:
            raise ValueError(f"expected at most {_MOST_DIMS} dimensions, found {array.ndim}")
        return cls(DTYPES.index(array.dtype.name), array.ndim, (c_int64 * _MOST_DIMS)(*array.shape))

    @property
    def dtype(self) -> str:
        """NumPy's name of the type."""
        return DTYPES[self._dtype]

    @property
    def shape(self) -> list[int]:
        """The dimensions."""
        return list(self._dims[: self._count])


_ERROR = (c_char_p, c_int64)
# An operation: process set and name.
_OPERATION = (c_int32, c_char_p)

# Name without the prefix -> return type and argument types.
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "interface": (c_int32, ()),
    "agree_min_max": (c_int32, (*_OPERATION, c_int32, c_void_p, c_void_p, c_void_p, c_double, *_ERROR)),
    "register": (c_int32, (*_OPERATION, c_char_p, c_void_p, c_int32, *_ERROR)),
    "unregister": (None, _OPERATION),
    "collective": (None, (c_int32, c_int64, c_int32, c_int32, c_int64)),
    "wake": (None, (c_int32,)),
    "network": (
        c_int32,
        (c_int32, c_double, c_double, c_int64, c_int32, c_void_p, c_void_p, c_void_p, c_void_p, *_ERROR),
    ),
    "network_follow": (c_int32, (c_int64, c_double, *_ERROR)),
    "fastest": (c_int32, (c_int32, c_int64)),
    "residual_get": (c_int64, (c_char_p, c_int32, c_void_p, c_int64)),
    "residual_put": (None, (c_char_p, c_int32, c_void_p, c_int64)),
    "ping": (c_double, (c_int32, c_int32, c_int32, c_int32, c_int64, c_double, *_ERROR)),
    "record_start": (None, (c_int64,)),
    "record_stop": (None, ()),
    "record_take": (c_int64, (c_void_p,)),
    "record_words": (POINTER(c_int64), ()),
    "record_names": (c_void_p, ()),
    "record_operations": (c_char_p, ()),
    "record_pace": (c_char_p, ()),
    "counters": (c_char_p, ()),
    "check_numerics": (None, (c_int32,)),
    "non_finite": (c_int64, ()),
    "fusion_want": (None, (c_double,)),
    "fusion_want_armed": (None, (c_int32,)),
    "armed_status": (c_char_p, ()),
    "fusion_sets": (c_int32, (c_void_p, c_int32)),
    "fusion_ask": (c_int64, (c_int32, c_int32, c_void_p, c_int64)),
    "fusion_status": (c_char_p, (c_int32,)),
    "fusion_agreement": (c_char_p, (c_int32,)),
    "fusion_own": (c_char_p, (c_int32,)),
    "fusion_plan": (c_char_p, (c_int32,)),
    "fusion_measurement": (c_char_p, (c_int32,)),
    "pipelined_settle": (c_int32, (*_OPERATION, c_double, *_ERROR)),
    "pipelined_settle_all": (c_int32, (c_double,)),
    "pipelined_result": (c_int64, (*_OPERATION, c_int32, c_void_p, c_int64)),
    "pipelined_describe": (c_int32, (*_OPERATION, c_int32, POINTER(TensorDescription))),
    "pipelined_drop": (None, _OPERATION),
    "pipelined_clear": (None, _OPERATION),
    "pipelined_put": (c_int32, (*_OPERATION, POINTER(TensorDescription), c_void_p)),
    "pipelined_sync_next": (c_int32, (*_OPERATION, c_int64)),
    "partial_counters": (c_char_p, (c_int32,)),
    "partial_lateness": (c_char_p, (c_int32,)),
    "partial_describe": (c_int32, (*_OPERATION, POINTER(TensorDescription))),
    "partial_save": (c_int32, (*_OPERATION, c_void_p, c_void_p, c_void_p, c_int64)),
    "partial_restore": (c_int32, (*_OPERATION, POINTER(TensorDescription), c_void_p, c_void_p, c_void_p, c_int64)),
    "partial_flush_next": (None, _OPERATION),
    "partial_flush": (c_int32, (*_OPERATION, *_ERROR)),
    "partial_flushed": (c_int32, (*_OPERATION, c_void_p, c_int64, *_ERROR)),
    "partial_flush_all": (None, ()),
    "leaving_ask": (c_int64, (c_int32,)),
    "leaving_heard": (c_int64, (c_void_p, c_int32)),
    "communicator_open": (c_int64, (c_int32, POINTER(c_int32), POINTER(c_int32), POINTER(c_double), *_ERROR)),
    "communicator_send": (c_int64, (c_int64, c_int32, c_int64, c_void_p, c_int64)),
    "communicator_receive": (c_int64, (c_int64, c_int32, c_int64, c_void_p, c_int64)),
    "communicator_wait": (c_int64, (c_int64, c_int64, c_double)),
    "communicator_abort": (None, (c_int64, c_int64, c_double)),
    "communicator_notify_failure": (None, (c_int64, c_char_p)),
    "communicator_why": (c_int64, (c_int64, *_ERROR)),
    "communicator_close": (None, (c_int64,)),
}


def _raise_caught(library: ctypes.CDLL) -> Any:
    """Return an errcheck for ctypes that raises RuntimeError if an exception ended the call (bridge/c_boundary.h)."""
    take = library.horovod_paceline_take_error
    take.restype, take.argtypes = None, _ERROR

    def check(result: Any, function: Any, arguments: tuple[Any, ...]) -> Any:
        failed = result < 0 if isinstance(result, (int, float)) else not result
        if failed:
            error = ctypes.create_string_buffer(ERROR_BYTES)
            take(error, ERROR_BYTES)
            if error.value:
                raise RuntimeError(f"{function.__name__}: {error.value.decode(errors='replace')}")
        return result

    return check


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the types of `library`'s entry points, once, and return it. A Horovod without them is left unchanged."""
    if not hasattr(library, "_paceline_declared"):
        library._paceline_declared = True  # type: ignore[attr-defined]
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(library, f"horovod_paceline_{name}", None)
            if function is not None:
                function.restype, function.argtypes = result, arguments
                function.errcheck = _raise_caught(library)
    return library
