"""hvd.partial_allreduce: which calls are accepted, and under which name they are handed in, in all frameworks."""

from __future__ import annotations

from typing import Any

from paceline.errors import UsageError
from paceline.partial.settings import Partial

# The count of fresh contributions travels behind the elements, in their type, and must be exact.
COUNTED = ("float16", "float32", "float64", "int32", "int64")
DENSE = "dense"


def marked_name(
    horovod: Any,
    name: str,
    dtype: str,
    partial: Partial,
    op: Any,
    process_set: Any,
    layout: str = DENSE,
    flush: bool = False,
) -> str:
    """The name with which Horovod's allreduce is a counted partial one (bridge/partial/rounds.h), after all checks.

    `horovod`: Horovod's module of the framework, whose Average and Sum `op` may be. `dtype`: as NumPy calls it.
    `layout`: DENSE, or what the tensor is otherwise.


    Raises UsageError, a ValueError, for names, operations, types and layouts that cannot be used; UserError for a
    quorum above the number of ranks.
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
    return partial.mark(process_set.size(), counted=True, flush=flush) + name
