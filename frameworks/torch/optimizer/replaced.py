"""When a script may put other parameters in the places of those in param_groups."""

from __future__ import annotations

from paceline.exchange.base import Exchange
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.failures import names_of
from paceline.torch.optimizer.members import Members


def refuse_uncounted(members: Members) -> None:
    """Raise UsageError if parameters were replaced, and have gradients that were not counted."""
    replaced = members.replaced() if members.stale else {}
    if any(parameter.grad is not None for parameter in replaced.values()):
        raise UsageError(
            f"Rank {horovod.rank()}: {len(replaced)} parameters were replaced in param_groups, and have gradients "
            "of backward passes that were not counted.",
            "Call optimizer.zero_grad() after parameters are replaced and before the next backward().",
        )


def refuse_in_flight(members: Members, exchange: Exchange, pending: bool) -> bool:
    """Whether parameters were replaced since `members` was updated.

    Raises UsageError if something of the old ones is in flight that is kept between updates, or if the new ones came
    with gradients between backward() and step() (`pending`).
    """
    replaced = members.replaced()
    names = names_of([one for one in members.all if one.parameter in replaced])
    if replaced and not exchange.at_rest:
        raise UsageError(
            f"Rank {horovod.rank()}: the parameters {names} were replaced while gradients of the old ones are in "
            "flight.",
            "Call optimizer.drain() on all ranks before parameters are replaced, between step() and backward().",
        )
    if pending and any(parameter.grad is not None for parameter in replaced.values()):
        raise UsageError(
            f"Rank {horovod.rank()}: the parameters {names} were replaced between backward() and step(), by ones that "
            "have gradients.",
            "Replace parameters after step(), or by ones without gradients.",
        )
    return bool(replaced)
