"""A bucket: small gradients that travel as one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._utils import _unflatten_dense_tensors

from paceline.exchange.adapter import Bucket
from paceline.torch.optimizer.company import Company, suffix
from paceline.torch.optimizer.gradients import store
from paceline.torch.optimizer.member import Member


class Flat(Company):
    """Members whose dense gradients are parts of one tensor that travels; to exchanges it is one gradient.

    A gradient that the backward pass made is copied in, and `parameter.grad` becomes the part, a view: the result is
    then where it belongs. One that was there before, as after zero_grad(set_to_none=False), stays the tensor that it
    is: if it is the part nothing is copied, else the result is copied back into it. An update that makes gradients anew
    has memory of its own, so that what a script has kept of an earlier one does not change.

    A frozen member contributes zeros. What is answered to these is no gradient of it, and what is owed to it is kept.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members, always_dense=True)
        self.name = f"{members[0].name}+{len(members) - 1}{suffix(members)}"
        self.bucket = Bucket(self.name, (self.name,))
        self._flat = torch.empty(0)
        self._slots: Sequence[Tensor] = [self._flat] * len(members)
        self._waiting: dict[Member, int] = {}  # answers still to come to zeros that it contributed
        self._owed: dict[Member, Tensor] = {}

    @property
    def keys(self) -> Sequence[Member]:
        """See Company.keys."""
        return self.members[:1]

    @property
    def flat(self) -> bool:
        """See Company.flat."""
        return True

    def active(self) -> Company:
        """See Company.active: all of them."""
        return self

    def outgoing(self) -> list[Tensor]:
        """See Company.outgoing."""
        gradients = [member.parameter.grad for member in self.members]
        if any(gradient is not part for gradient, part in zip(gradients, self._slots, strict=True)):
            self._gather(gradients)
        return [self._flat]

    def _gather(self, gradients: Sequence[Tensor | None]) -> None:
        parameters = [member.parameter for member in self.members]
        first = parameters[0]
        # A model may have changed its type or device since, in part.
        dtype, alike = first.dtype, all(one.dtype is first.dtype and one.is_cpu for one in parameters)
        for other in () if alike else parameters:
            dtype = torch.promote_types(dtype, other.dtype)
        self._flat = torch.empty(sum([one.numel() for one in parameters]), dtype=dtype)
        self._slots = _unflatten_dense_tensors(self._flat, parameters)
        targets, sources = [], []
        for member, gradient, part in zip(self.members, gradients, self._slots, strict=True):
            if gradient is None or not member.active:
                part.zero_()
            else:
                targets.append(part)
                sources.append(gradient.to_dense() if gradient.is_sparse else gradient)
        if targets:
            torch._foreach_copy_(targets, sources)
        for member, gradient, part in zip(self.members, gradients, self._slots, strict=True):
            if gradient is None or member.fresh or gradient.is_sparse:
                if alike and member.active:
                    member.parameter.grad = part
                elif gradient is not None:
                    member.parameter.grad = gradient.clone()  # its memory may be in use elsewhere (storage.py)

    def store(self, results: Sequence[Tensor] | None, lag: int | None) -> None:
        """See Company.store."""
        if results is not None and results[0] is not self._flat:
            self._flat.copy_(results[0])
        for member, part in zip(self.members, self._slots, strict=True):
            if not member.active or member in self._waiting:
                self._store_nothing(member, part, lag, answered=results is not None)
            elif results is None:
                member.parameter.grad = None
            elif member.parameter.grad is not part:
                store(member, part)
            if member in self._owed and member.active and results is not None:
                member.parameter.grad.add_(self._owed.pop(member))

    def _store_nothing(self, member: Member, part: Tensor, lag: int | None, answered: bool) -> None:
        if lag is None:
            if answered:
                self._owed[member] = self._owed[member] + part if member in self._owed else part.clone()
            return
        if not member.active:
            self._waiting[member] = lag + 1
        else:
            member.parameter.grad = None
        self._waiting[member] -= 1
        if not self._waiting[member]:
            del self._waiting[member]

    # --- what is in flight, by whose it is ------------------------------------------------------------------------

    def split(self, value: Any) -> dict[str, Any]:
        """What an exchange has in flight of this bucket, by the names of members: an array, or a dict with arrays.

        What they are owed is theirs from here on.
        """
        found: dict[str, Any] = {}
        start = 0
        for member in self.members:
            end = start + member.parameter.numel()
            shape = tuple(member.parameter.shape)
            if isinstance(value, Mapping):
                found[member.name] = {
                    key: one[start:end].reshape(shape) if np.ndim(one) else one for key, one in value.items()
                }
            else:
                found[member.name] = value[start:end].reshape(shape)
            start = end
        return found

    def owed(self) -> dict[str, Tensor]:
        """By name, what was answered to members that were frozen then."""
        return {member.name: tensor for member, tensor in self._owed.items()}

    def forget(self) -> None:
        """Nothing is in flight any more."""
        self._waiting.clear()
        self._owed.clear()
