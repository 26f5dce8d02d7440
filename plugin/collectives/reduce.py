"""hvd.reduce of all frameworks: an allreduce whose result only one rank needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.arguments import choice_asked
from paceline.errors import UsageError
from paceline.registry.collectives import HOROVODS

# bridge/reserved_names.h. The library treats an allreduce with this prefix as a reduce; the root's number in the
# process set follows the prefix.
REDUCE_NAMES = "\x7fpaceline.reduce."
# The same prefix in names of TensorFlow's nodes, which cannot hold the control character.
REDUCE_NODES = REDUCE_NAMES.replace("\x7f", ">7F")


@dataclass(frozen=True)
class Reduce:
    """One call.

    Attributes:
        name: the operation's name.
        root: the root's number in the process set.
        at_root: this rank is the root.
        scale: factor for a gradient of the result; None if the operation has no gradient.
    """

    name: str
    root: int
    at_root: bool
    scale: float | None  # None: the operation has no gradient

    def operation(self, on_cpu: bool) -> str:
        """Return the allreduce's name; an ordinary one where Paceline's collectives are not in use."""
        if on_cpu and choice_asked().collective != HOROVODS:
            return f"{REDUCE_NAMES}{self.root}.{self.name}"
        return f"reduce.{self.root}.{self.name}"

    def gradient_scale(self) -> float:
        """Return `scale`. Raises UsageError if it is None."""
        if self.scale is None:
            raise UsageError(
                f"The reduce of {self.name!r} has no gradient: only averages and sums have.",
                "Use op=hvd.Average or op=hvd.Sum, or stop the gradient before it.",
            )
        return self.scale


def check(
    horovod: Any, name: str, root_rank: int, op: Any, prescale_factor: float, postscale_factor: float, process_set: Any
) -> Reduce:
    """Return the checked call. Raises UsageError, a ValueError, for invalid roots and operations.

    `horovod` is Horovod's module of the framework. `root_rank` is a number among all ranks, as in hvd.broadcast.
    """
    if not horovod.is_initialized():
        raise UsageError(f"reduce of {name!r} was called before hvd.init().", "Call hvd.init() first.")
    ranks = list(process_set.ranks)
    whole = isinstance(root_rank, int) and not isinstance(root_rank, bool)
    if not whole or root_rank not in ranks:
        raise UsageError(
            f"reduce of {name!r} on rank {horovod.rank()}: expected root_rank among the ranks {ranks} of the process "
            f"set, found {root_rank!r}.",
            "Give the number that hvd.rank() has on the rank that is to get the result.",
        )
    if not process_set.included():
        raise UsageError(
            f"reduce of {name!r}: rank {horovod.rank()} is not a member of the process set {ranks}.",
            "Leave the call out on this rank, or give it a process set that this rank is in.",
        )
    known = {getattr(horovod, word): word for word in ("Average", "Sum", "Min", "Max", "Product")}
    if op not in known:
        raise UsageError(
            f"reduce of {name!r} was given op={op}.", f"Use one of {', '.join(f'hvd.{one}' for one in known.values())}."
        )
    divisors = {"Average": len(ranks), "Sum": 1}
    scale = None
    if known[op] in divisors:
        scale = prescale_factor * postscale_factor / divisors[known[op]]
    return Reduce(name, ranks.index(root_rank), horovod.rank() == root_rank, scale)
