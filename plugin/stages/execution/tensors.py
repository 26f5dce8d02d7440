"""Operations on a framework's tensors that stages need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from paceline.stages.execution.activations import Form


class Memory(NamedTuple):
    """Memory of a message; `held` keeps it alive."""

    address: int
    size_bytes: int
    held: object


class Tensors(Protocol):
    """A framework's tensors on the device of one stage.

    A *host tensor* is the source or destination of a message: contiguous memory of the host, in the framework's type.
    """

    def unfit(self, value: Any) -> str:
        """Describe `value` if it cannot be sent, such as "a str"; "" for a dense tensor."""
        ...

    def members(self, value: Any, whose: str) -> tuple[str, list[Any]]:
        """Return the kind of `value`, which describes its structure, and its tensors.

        Raises UsageError, in which `whose` names the value, if it cannot be sent.
        """
        ...

    def whole(self, kind: str, tensors: Sequence[Any]) -> Any:
        """Return the value that `members` took apart, on this rank or another."""
        ...

    def host(self, tensor: Any) -> Any:
        """Return `tensor` as a host tensor, without its autograd state."""
        ...

    def empty(self, form: Form) -> Any:
        """Return an uninitialised host tensor of this form."""
        ...

    def form(self, host: Any, differentiable: bool) -> Form:
        """Return the form of a host tensor."""
        ...

    def memory(self, host: Any) -> Memory:
        """Return the memory of a host tensor."""
        ...

    def here(self, tensor: Any) -> Any:
        """Return a tensor or host tensor as a tensor on the stage's device."""
        ...

    def detached(self, tensor: Any) -> Any:
        """Return `tensor` without its autograd state."""
        ...

    def number(self, tensor: Any) -> float:
        """Return the value of a scalar."""
        ...

    def times(self, tensor: Any, factor: Any) -> Any:
        """Return a scalar times a factor, in the scalar's type."""
        ...

    def split(self, tensor: Any, count: int) -> list[Any]:
        """Split a tensor by rows into `count` equal parts; if they do not divide, the first parts have one more."""
        ...

    def joined(self, parts: Sequence[Any]) -> Any:
        """Concatenate the rows of all parts, in order."""
        ...
