"""hvd.partial_allreduce of all frameworks: an allreduce that does not wait for late ranks (see settings.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from paceline.errors import UsageError
from paceline.native.exchanges import register
from paceline.partial.settings import MAJORITY, SUM, Partial

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

    Raises UserError for a quorum above the number of ranks and beside autotuning, UsageError if it had other settings
    before.
    """
    partial.check_environment()
    register(library, process_set.process_set_id, operation, *partial.registration(process_set.size(), counted=True))


def calls(horovod: Any, hand_in: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """`partial_allreduce_async`, `partial_allreduce` and `flush_partial` of one framework.

    `horovod`: its module. `hand_in(tensor, name, partial, op, process_set, flush, waits)` makes the call and returns
    its PartialResult; `waits`: whether the caller does nothing else until the answer has come.
    """

    def partial_allreduce_async(
        tensor: Any,
        name: str,
        quorum: int | str = MAJORITY,
        op: Any = horovod.Average,
        missed: str = SUM,
        max_lag: int = 0,
        seed: int = 0,
        process_set: Any = horovod.global_process_set,
    ) -> Any:
        """Hand in `tensor` under `name` for the next round, and return a PartialResult at once.

        `tensor`: a dense tensor; in TensorFlow also a variable, or what tf.convert_to_tensor takes, and a thread waits
        for the answer there. `quorum`, `missed`, `max_lag`, `seed`: see hvd.Partial; the same in all calls of a name,
        on all ranks. `op`: hvd.Average, which divides by the number of all ranks whoever has contributed, or hvd.Sum.
        Each name is called equally often by all ranks; the first round of a name waits for all of them. One call of a
        name at a time. Gradients do not flow through it.

        Raises UsageError (a ValueError) for other operations and types, UserError for a quorum that cannot be reached.
        """
        partial = Partial(quorum=quorum, missed=missed, max_lag=max_lag, seed=seed)
        return hand_in(tensor, name, partial, op, process_set, flush=False, waits=False)

    def partial_allreduce(
        tensor: Any,
        name: str,
        quorum: int | str = MAJORITY,
        op: Any = horovod.Average,
        missed: str = SUM,
        max_lag: int = 0,
        seed: int = 0,
        process_set: Any = horovod.global_process_set,
    ) -> Any:
        """As partial_allreduce_async, and wait: the result and the number of fresh contributions in it (PartialResult).

        A rank that is late does not wait: it gets what it missed, and its tensor goes with the next round. In
        TensorFlow also within tf.function: the call is made in every execution, whether its result is used or not,
        under exactly this name; calls of one name in one graph come one after the other.
        """
        partial = Partial(quorum=quorum, missed=missed, max_lag=max_lag, seed=seed)
        return hand_in(tensor, name, partial, op, process_set, flush=False, waits=True).wait()

    def flush_partial(
        tensor: Any,
        name: str,
        op: Any = horovod.Average,
        process_set: Any = horovod.global_process_set,
        **choices: Any,
    ) -> Any:
        """Bring out what the ranks have in their send buffers under `name`; all ranks call it after their last call.

        `tensor` gives shape and dtype, its values mean nothing; all else as in the calls before (`choices`: quorum,
        missed, max_lag, seed). The PartialResult is everything that this rank has not been answered with: with
        missed="sum" all ranks have then got the same in all. A rank that flushes makes no calls until all do, and no
        round waits for it. Flush all names before you wait for one.
        """
        return hand_in(tensor, name, Partial(**choices), op, process_set, flush=True, waits=False)

    return partial_allreduce_async, partial_allreduce, flush_partial
