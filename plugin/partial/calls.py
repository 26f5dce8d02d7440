"""hvd.partial_allreduce of all frameworks: an allreduce that does not wait for late ranks (see settings.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from paceline.errors import UsageError
from paceline.native.exchanges import register
from paceline.partial.settings import MAJORITY, SUM, Partial

# Arguments of flush_partial, with the values of the earlier calls.
_OF_CALLS = ("quorum", "missed", "max_lag", "seed")
# The count of fresh contributions is sent as one more element, in the tensor's type, and must be exact.
COUNTED = ("float16", "float32", "float64", "int32", "int64")
DENSE = "dense"


def check(horovod: Any, name: str, dtype: str, op: Any, layout: str = DENSE) -> None:
    """Raise UsageError, a ValueError, for names, operations, types and layouts that cannot be used.

    `horovod`: Horovod's module of the framework; `op` may be its Average or Sum. `dtype`: NumPy's name. `layout`:
    DENSE, or the name of the tensor's other layout.
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
    """Register `operation`, a full name, as a counted partial one; before each call, or once before all.

    Raises UserError for a quorum above the number of ranks and under autotuning, UsageError if the operation was
    registered with other settings.
    """
    partial.check_environment()
    register(library, process_set.process_set_id, operation, *partial.registration(process_set.size(), counted=True))


def calls(horovod: Any, hand_in: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return `partial_allreduce_async`, `partial_allreduce` and `flush_partial` of one framework.

    `horovod`: its module. `hand_in(tensor, name, partial, op, process_set, flush, waits)` makes the call and returns
    its PartialResult; `waits`: the caller blocks until the answer arrives.
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
        """Submit `tensor` under `name` for the next round, and return a PartialResult at once.

        All ranks call each name the same number of times; the first round of a name waits for all of them. Only one
        call of a name may be in flight. Gradients do not flow through it.

        Args:
            tensor: a dense tensor; in TensorFlow also a variable, or an argument of tf.convert_to_tensor. In TensorFlow
                a thread waits for the answer.
            name: name of the operation.
            quorum: see hvd.Partial. `quorum`, `missed`, `max_lag` and `seed` must be equal in all calls of a name, on
                all ranks.
            op: hvd.Average, which divides by the number of all ranks, or hvd.Sum.
            missed: see hvd.Partial.
            max_lag: see hvd.Partial.
            seed: see hvd.Partial.
            process_set: the ranks that take part; all by default.

        Raises:
            UsageError: for other operations and types; it is a ValueError.
            UserError: for a quorum that cannot be reached.
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
        """Submit `tensor` as partial_allreduce_async does, wait, and return the PartialResult.

        It has the result and the number of fresh contributions in it. A late rank does not wait: it gets the rounds
        that it missed, and its tensor enters the next round. It works within tf.function, too: every execution makes
        the call under exactly this name, even if its result is not used, and calls of one name in a graph run in
        sequence.
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
        """Return the rest of the results under `name`; all ranks call it after their last call of the name.

        The flush combines all send buffers. The PartialResult has everything that this rank has not received; with
        missed="sum", all ranks have received the same total then. A rank that flushes makes no calls until all ranks
        have flushed, and no round waits for it. Flush all names before waiting for one.

        Args:
            tensor: gives shape and dtype; its values are ignored.
            name: name of the earlier calls.
            op: operation of the earlier calls.
            process_set: process set of the earlier calls.
            **choices: `quorum`, `missed`, `max_lag` and `seed` of the earlier calls.

        Raises:
            UsageError: for other arguments; it is a ValueError.
        """
        if other := sorted(choices.keys() - set(_OF_CALLS)):
            raise UsageError(
                f"Rank {horovod.rank()}: flush_partial of {name!r} was given {', '.join(other)}, which it does not "
                "use.",
                f"Give only those of {', '.join(_OF_CALLS)} that the earlier calls were given.",
            )
        return hand_in(tensor, name, Partial(**choices), op, process_set, flush=True, waits=False)

    return partial_allreduce_async, partial_allreduce, flush_partial
