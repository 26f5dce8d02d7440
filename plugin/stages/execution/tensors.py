"""What stages need of a framework's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from paceline.stages.execution.activations import Form


class Memory(NamedTuple):
    """What a message leaves from or arrives in; `held` keeps it alive."""

    address: int
    size_bytes: int
    held: object


class Tensors(Protocol):
    """A framework's tensors on the device of one stage.

    A *host tensor* is what messages leave from and arrive in: memory of the host without gaps, as the framework likes.
    """

    def unfit(self, value: Any) -> str:
        """What `value` is if it cannot travel, such as "a str"; "" for a dense tensor."""
        ...

    def members(self, value: Any, whose: str) -> tuple[str, list[Any]]:
        """The kind of `value`, which says how it is made of tensors, and these. Raises UsageError, which says `whose`
        it is, if it cannot travel.
        """
        ...

    def whole(self, kind: str, tensors: Sequence[Any]) -> Any:
        """What `members` took apart, on this rank or another."""
        ...

    def host(self, tensor: Any) -> Any:
        """`tensor` as a host tensor, without what gradients need."""
        ...

    def empty(self, form: Form) -> Any:
        """A host tensor of this form, for what will come."""
        ...

    def form(self, host: Any, differentiable: bool) -> Form:
        """That of a host tensor."""
        ...

    def memory(self, host: Any) -> Memory:
        """That of a host tensor."""
        ...

    def here(self, tensor: Any) -> Any:
        """A tensor or host tensor as a tensor on the stage's device."""
        ...

    def detached(self, tensor: Any) -> Any:
        """`tensor` without what gradients need."""
        ...

    def number(self, tensor: Any) -> float:
        """The value of a scalar."""
        ...

    def times(self, tensor: Any, factor: Any) -> Any:
        """A scalar times a factor, of the scalar's type."""
        ...

    def split(self, tensor: Any, count: int) -> list[Any]:
        """Parts of as many rows each as it goes, the first ones one more."""
        ...

    def joined(self, parts: Sequence[Any]) -> Any:
        """The tensor that has the rows of all parts, in order."""
        ...
