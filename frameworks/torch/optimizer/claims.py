"""At most one live optimizer combines the gradient of a parameter."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.bucket import Gradient

if TYPE_CHECKING:
    from paceline.torch.optimizer.reduction import Reduction

# Live reductions that combine gradients over ranks.
live: weakref.WeakSet[Reduction] = weakref.WeakSet()


def reductions_of(parameters: Sequence[Tensor]) -> list[Reduction]:
    """Return the live reductions of these parameters."""
    return [one for one in live if any(map(one.buckets.find, parameters))]


def claim(gradient: Gradient, reduction: Reduction) -> None:
    """Make `reduction` combine this gradient. Raises UsageError if another live reduction does.

    `parameter.grad` is one tensor: two reductions would overwrite each other's result.
    """

    def another() -> bool:
        found = [one.buckets.find(gradient.parameter) for one in list(live) if one is not reduction]
        return any(one is not None and one.owned for one in found)

    if another():
        gc.collect()  # a scheduler and its optimizer refer to each other
        if another():
            raise UsageError(
                f"Rank {horovod.rank()}: {gradient.name!r} is a parameter of two live DistributedOptimizers; each "
                "would combine its gradient.",
                "Give each parameter to one of them, and delete an optimizer that is no longer used. If two "
                "optimizers must update it: reducer = hvd.DistributedOptimizer(torch.optim.SGD(all_parameters)), "
                "call reducer.synchronize() after each backward pass, and step the two optimizers unwrapped.",
            )
    gradient.owned = True
