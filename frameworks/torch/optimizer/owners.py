"""Which live optimizers have which parameters.

`parameter.grad` is one tensor. If two optimizers combined it, each would write its result into the other's.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod

if TYPE_CHECKING:
    from paceline.torch.optimizer.member import Member
    from paceline.torch.optimizer.reduction import Reduction

_live: weakref.WeakSet[Reduction] = weakref.WeakSet()
_owners = WeakTensorKeyDictionary()  # parameter -> weak reference of the Reduction that combines its gradients


def enter(reduction: Reduction) -> None:
    """List `reduction`, one that exchanges gradients, for as long as it lives."""
    _live.add(reduction)


def reductions_of(parameters: Sequence[Tensor]) -> list[Reduction]:
    """Those that have one of the parameters."""
    return [one for one in _live if any(map(one.has, parameters))]


def own(member: Member, reduction: Reduction) -> None:
    """Have `reduction` combine the gradients of a member, from the first one on.

    Raises UsageError if another live one does.
    """
    if _other(member, reduction):
        gc.collect()  # a scheduler and its optimizer refer to each other
    if _other(member, reduction):
        raise UsageError(
            f"Rank {horovod.rank()}: {member.name!r} is a parameter of two live DistributedOptimizers; each would "
            "combine its gradient.",
            "Give each parameter to one of them, and delete an optimizer that is no longer used. If two optimizers "
            "must update it: reducer = hvd.DistributedOptimizer(torch.optim.SGD(all_parameters)), call "
            "reducer.synchronize() after each backward pass, and step the two optimizers unwrapped.",
        )
    _owners[member.parameter] = weakref.ref(reduction)


def _other(member: Member, reduction: Reduction) -> bool:
    reference = _owners.get(member.parameter)
    owner = None if reference is None else reference()
    return owner is not None and owner is not reduction and owner.has(member.parameter)
