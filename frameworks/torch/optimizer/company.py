"""Which parameters of an optimizer travel together."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from paceline.exchange.adapter import Bucket
from paceline.torch.optimizer.gradients import outgoing, store
from paceline.torch.optimizer.member import Member


def suffix(members: Sequence[Member]) -> str:
    """What stands after the name of an operation of these: the library knows the shapes that a name had before."""
    generation = sum(member.generation for member in members)
    return f".{generation}" if generation else ""


class Company:
    """Members whose gradients travel as one operation, and how exchanges see it: named after the first of them."""

    def __init__(self, members: Sequence[Member], always_dense: bool = False) -> None:
        """`always_dense`: sparse gradients among them travel as dense ones."""
        self.members = tuple(members)
        self.always_dense = always_dense
        self.complete = 0  # members whose gradient is, in this update,
        self.awaited = 0  # of so many
        names = tuple(member.name for member in members)
        self.bucket = Bucket(names[0] + suffix(members), names)
        self._parts: dict[tuple[Member, ...], Company] = {}

    def active(self) -> Company:
        """These without the frozen."""
        if len(self.members) == 1:
            return self
        active = tuple(member for member in self.members if member.active)
        if not active or len(active) == len(self.members):
            return self
        if active not in self._parts:
            self._parts[active] = Company(active, self.always_dense)
        return self._parts[active]

    @property
    def idle(self) -> bool:
        """True if no rank has a gradient of any of these in this update."""
        return all(member.idle for member in self.members)

    @property
    def keys(self) -> Sequence[Member]:
        """Members that are in no other company that travels while these are all in this one."""
        return self.members

    @property
    def flat(self) -> bool:
        """Whether gradients are copied into a tensor of all."""
        return False

    def outgoing(self) -> list[Tensor]:
        """What travels, tensors that may be overwritten; zeros for members without a gradient."""
        return [outgoing(member, self.always_dense) for member in self.members]

    def store(self, results: Sequence[Tensor] | None, lag: int | None) -> None:
        """Make the results of `outgoing` the gradients of the members; None: there are none.

        `lag`: how many updates ago what is answered was handed in (Exchange.lag).
        """
        for member, result in zip(self.members, results or [None] * len(self.members), strict=True):
            store(member, result)
