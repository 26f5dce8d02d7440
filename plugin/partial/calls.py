"""hvd.partial_allreduce: which calls are accepted, and what their operations are registered with, in all frameworks."""

from __future__ import annotations

import ctypes
from typing import Any

from paceline.errors import UsageError
from paceline.native.exchanges import register
from paceline.partial.settings import Partial

# The count of fresh contributions travels behind the elements, in their type, and must be exact.
COUNTED = ("float16", "float32", "float64", "int32", "int64")
DENSE = "dense"


def check(horovod: Any, name: str, dtype: str, op: Any, layout: str = DENSE) -> None:
    """Raise UsageError, a ValueError, for names, operations, types and layouts that cannot be used.

    `horovod`: Horovod's module of the framework, whose Average and Sum `op` may be. `dtype`: as NumPy calls it.
    `layout`: DENSE, or what the tensor is otherwise.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"partial_allreduce was given name={name!r}.",
            "Give a name of at least one character, the same on all ranks: rounds belong to it.",
        )
    if op not in (horovod.Average, horovod.Sum):
        raise UsageError(
            f"partial_allreduce of {name!r} was given op={op}.",
            "Use hvd.Average or hvd.Sum: late contributions are added up.",
        )
    if dtype not in COUNTED or layout != DENSE:
        raise UsageError(
            f"partial_allreduce of {name!r} was given a {layout} tensor of {dtype}.",
            f"Use a dense tensor of one of {', '.join(COUNTED)}.",
        )
    if op == horovod.Average and not dtype.startswith("float"):
        raise UsageError(f"partial_allreduce of {name!r} cannot average {dtype}.", "Use hvd.Sum.")


def begin(library: ctypes.CDLL, operation: str, partial: Partial, process_set: Any) -> None:
    """Make calls of `operation`, the full name, counted partial ones; before each call, or once before all.

    Raises UserError for a quorum above the number of ranks, UsageError if it had other settings before.
    """
    register(library, process_set.process_set_id, operation, *partial.registration(process_set.size(), counted=True))
