"""Errors that a rank raises because another rank has failed, or has ended."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

from paceline.native.library import loaded

FAILURE, END = "failure", "end"
_TEXT_BYTES = 4096
# By class name, because a traceback's text has only names. Subclasses count, too.
FOLLOWS = {
    "HorovodInternalError": FAILURE,
    "StageFailed": FAILURE,
    "StageLost": FAILURE,
    "HorovodEnded": END,
}
_ENDED = "has been shut down"  # Horovod raises the same class for failure and end


def of_name(name: str, text: str) -> str:
    """Return the cause of an error of the class `name`: FAILURE, END or ""."""
    follows = FOLLOWS.get(name.rpartition(".")[2], "")
    return END if _ENDED in text and follows else follows


def of(error: BaseException) -> str:
    """Return the cause of an error or of one in its chain: FAILURE, END or ""."""
    return next(filter(None, map(_of_one, _chain(error))), "")


def _of_one(error: BaseException) -> str:
    text = str(error)
    if _ENDED in text:
        return END
    for kind in type(error).__mro__:
        if kind.__name__ in FOLLOWS:
            return FOLLOWS[kind.__name__]
    # TensorFlow raises its own classes; their text has the failure that the library received from another rank.
    return FAILURE if any(why in text for why in _heard()) else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _heard() -> Iterator[str]:
    """Yield the first line of each failure notice that Horovod's libraries in this process received."""
    out = ctypes.create_string_buffer(_TEXT_BYTES)
    for framework in ("torch", "tensorflow"):
        if f"horovod.{framework}.mpi_ops" in sys.modules:
            loaded(framework).horovod_paceline_why_failed(out, ctypes.c_int64(_TEXT_BYTES))
            if out.value:
                yield out.value.decode(errors="replace").partition("\n")[0]
