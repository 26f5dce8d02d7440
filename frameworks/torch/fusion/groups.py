"""The argument `groups`: which gradients travel as one operation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor

from paceline.torch.errors import UsageError

Group = tuple[Tensor, ...]


def form_groups(groups: int | Sequence[Sequence[Tensor]] | None, parameters: Sequence[Tensor]) -> dict[Tensor, Group]:
    """Parameter -> the group it travels with; parameters that travel alone are left out.

    A number makes that many groups of neighbours of nearly equal length out of `parameters`; a list of lists is taken
    as it is. None and 0 mean no groups. A group of mixed element types or devices is cut up, because one operation
    carries one type. Raises UsageError for anything else.
    """
    if groups is None:
        return {}
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 0:
            raise UsageError(
                f"groups={groups} is negative.", "Use a number of groups >= 0, or a list of lists of tensors."
            )
        wanted = _cut(parameters, groups) if groups else []
    elif isinstance(groups, (list, tuple)):
        wanted = _checked(groups, parameters)
    else:
        raise UsageError(
            f"groups is of type {type(groups).__name__}.", "Use a number of groups >= 0, or a list of lists of tensors."
        )
    return {
        parameter: group
        for members in wanted
        for group in _of_one_kind(members)
        if len(group) > 1
        for parameter in group
    }


def _cut(parameters: Sequence[Tensor], count: int) -> list[Sequence[Tensor]]:
    length, longer = divmod(len(parameters), count)
    bounds = [i * length + min(i, longer) for i in range(count + 1)]
    return [parameters[low:high] for low, high in itertools.pairwise(bounds)]


def _checked(groups: Sequence[Sequence[Tensor]], parameters: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    known, seen = set(parameters), set()
    for number, members in enumerate(groups):
        if not isinstance(members, (list, tuple)):
            raise UsageError(
                f"groups[{number}] is of type {type(members).__name__}.",
                "Each group is a list of the model's parameters.",
            )
        for position, member in enumerate(members):
            where = f"groups[{number}][{position}]"
            if not isinstance(member, Tensor):
                raise UsageError(
                    f"{where} is of type {type(member).__name__}.", "Each group is a list of the model's parameters."
                )
            if member not in known:
                raise UsageError(
                    f"{where} (shape {tuple(member.shape)}) is no parameter of the optimizer.",
                    "Put only parameters of the optimizer into groups.",
                )
            if member in seen:
                raise UsageError(
                    f"{where} (shape {tuple(member.shape)}) is in groups twice.", "A parameter travels in one group."
                )
            seen.add(member)
    return list(groups)


def _of_one_kind(members: Sequence[Tensor]) -> list[Group]:
    kinds: dict[object, list[Tensor]] = {}
    for member in members:
        kinds.setdefault((member.dtype, member.device), []).append(member)
    return [tuple(kind) for kind in kinds.values()]
