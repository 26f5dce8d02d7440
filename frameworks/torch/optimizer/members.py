"""The parameters of an optimizer, those that it is given later, too, and which of them travel together."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.torch.fusion.groups import Group
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.buckets import fits, form_buckets
from paceline.torch.optimizer.company import Company
from paceline.torch.optimizer.flat import Flat
from paceline.torch.optimizer.layouts import DENSE
from paceline.torch.optimizer.member import Member


class Members:
    """`all` of them in the order of the parameter groups, and the company of each.

    What is found here once is not looked for in every update.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: ParameterNames,
        groups: dict[Tensor, Group],
        sparse_as_dense: bool,
        bucket_bytes: int,
        shapes_stay: bool,
    ) -> None:
        """`bucket_bytes`: gradients of so many bytes and less, of no group, travel in buckets; 0: none.

        `shapes_stay`: the library keeps results by name, of one shape each.
        """
        self.all: list[Member] = []
        self.company: dict[Member, Company] = {}
        self._optimizer = optimizer
        self._names = names
        self._groups = groups
        self._sparse_as_dense = sparse_as_dense
        self._bucket_bytes = bucket_bytes
        self._shapes_stay = shapes_stay
        self._generations: dict[str, int] = {}
        self._known: dict[Tensor, Member] = {}
        self._places: list[list[Tensor]] = []  # the parameters by group, when they were looked at last
        self._flats: dict[str, Flat] = {}

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self._known

    @property
    def stale(self) -> bool:
        """Whether the groups have other parameters than at the last `update`."""
        groups = self._optimizer.param_groups
        return len(groups) != len(self._places) or any(
            len(group["params"]) != len(known) or not all(map(operator.is_, group["params"], known))
            for group, known in zip(groups, self._places, strict=True)
        )

    def replaced(self) -> dict[Tensor, Tensor]:
        """Parameters that are no longer in the groups, and those that are in their places."""
        places = [group["params"] for group in self._optimizer.param_groups]
        present = {parameter for group in places for parameter in group}
        pairs = ((old, new) for many in zip(self._places, places) for old, new in zip(*many))  # as far as both reach
        return {old: new for old, new in pairs if old not in present and new not in self._known}

    def update(self) -> None:
        """Name those that came since. One that stands in the place of one that went has its name, group and bucket."""
        if not self.stale:
            return
        self._replace(self.replaced())
        param_groups = self._optimizer.param_groups
        parameters = [parameter for group in param_groups for parameter in group["params"]]
        self._places = [list(group["params"]) for group in param_groups]
        for index, group in enumerate(param_groups):
            if any(parameter not in self._names for parameter in group["params"]):
                self._names.add_group(param_groups, index)
        fresh = [parameter for parameter in parameters if parameter not in self._known]
        self._known.update((parameter, Member(parameter, self._names[parameter])) for parameter in fresh)
        for parameter in fresh:
            member = self._known[parameter]
            member.generation = self._generations.get(member.name, 0)
        for parameter in fresh:
            member = self._known[parameter]
            companions = self._groups.get(parameter)
            if companions is None:
                self.company[member] = self._single(member)
                member.small = fits(parameter, self._bucket_bytes)
            elif member not in self.company:
                company = Company([self._known[other] for other in companions], always_dense=True)
                self.company.update(dict.fromkeys(company.members, company))
        self.all = [self._known[parameter] for parameter in parameters]
        small = [member for member in self.all if member.small and member.sparse_dims is None]
        if len(small) == 1:
            small[0].small = False  # it has no neighbour, so need not wait for the others' layouts

    def _replace(self, replaced: dict[Tensor, Tensor]) -> None:
        gone = {self._known.pop(old) for old in replaced}
        flats = [flat for flat in self._flats.values() if not gone.isdisjoint(flat.members)]
        self._dissolve(flats)
        for member in {member for flat in flats for member in flat.members}:
            member.sparse_dims = None  # the ranks agree on them again, and form buckets
        for member in gone:
            del self.company[member]
        for old, new in replaced.items():
            name = self._names.succeed(old, new)
            if self._shapes_stay and old.shape != new.shape:
                self._generations[name] = self._generations.get(name, 0) + 1
        self._groups = {
            replaced.get(parameter, parameter): tuple(replaced.get(other, other) for other in group)
            for parameter, group in self._groups.items()
        }

    def _single(self, member: Member) -> Company:
        return Company([member], self._sparse_as_dense)

    def form_buckets(self, agreed: Iterable[Member]) -> None:
        """The ranks have agreed on the layouts of these members just now, and would form the same buckets of them."""
        small = {member for member in agreed if member.small and member.sparse_dims == DENSE}
        for bucket in form_buckets(self.all, small):
            flat = Flat(bucket)
            self._names.stand_in(flat.name, bucket[0].parameter)
            self._flats[flat.name] = flat
            self.company.update(dict.fromkeys(bucket, flat))

    def stay_single(self, names: Iterable[str]) -> None:
        """Those of these names are in no bucket from here on: what is in flight of theirs travelled by itself."""
        wanted = set(names)
        self._dissolve([flat for flat in self._flats.values() if any(one.name in wanted for one in flat.members)])
        for member in self._known.values():
            member.small = member.small and member.name not in wanted

    def forget(self) -> None:
        """The ranks have changed: they must agree anew (layouts.py), and then form buckets."""
        self._dissolve(list(self._flats.values()))
        for member in self._known.values():
            member.sparse_dims, member.idle = None, False

    def _dissolve(self, flats: Iterable[Flat]) -> None:
        for flat in flats:
            del self._flats[flat.name]
            for member in flat.members:
                self.company[member] = self._single(member)

    # --- what is in flight ----------------------------------------------------------------------------------------

    def by_member(self, results: Mapping[Any, Any], take: bool = False) -> dict[str, Any]:
        """What an exchange has in flight, by the names of members instead of those of buckets, and what they are owed.

        `take`: they are owed nothing from here on.
        """
        found: dict[str, Any] = {}
        for name, value in results.items():
            flat = self._flats.get(name)
            if flat is None:
                found[name] = value
                continue
            found.update(flat.split(value))
            for member, owed in flat.owed().items():
                found[member] = _with(found[member], owed.numpy())
            if take:
                flat.forget()
        return found

    def owed(self) -> dict[Any, Any]:
        """What members of buckets are owed, by name; they are owed nothing from here on."""
        found: dict[Any, Any] = {}
        for flat in self._flats.values():
            found.update(flat.owed())
            flat.forget()
        return found


def _with(value: Any, owed: np.ndarray[Any, Any]) -> Any:
    """What is in flight of a gradient, and `owed`, of a round that this rank has been answered with."""
    if not isinstance(value, Mapping):
        return value + owed
    return {**value, "results": value["results"] + owed, "missed": max(value["missed"], 1)}
