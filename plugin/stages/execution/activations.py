"""What travels between stages: a tensor, or a tuple or list of tensors; and what tells the next stage its form."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.errors import UsageError


class Form(NamedTuple):
    """Of one tensor: its dtype's name, shape, strides in elements, and whether a gradient comes back for it."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    differentiable: bool


class Signature(NamedTuple):
    """Of all that a stage hands on: "tensor", "tuple" or "list", and its members."""

    kind: str
    forms: tuple[Form, ...]

    def encode(self) -> bytes:
        """For the next stage."""
        return json.dumps([self.kind, self.forms]).encode()

    @staticmethod
    def decode(text: bytes) -> Signature:
        """What `encode` made."""
        kind, forms = json.loads(text)
        return Signature(kind, tuple(Form(dtype, tuple(s), tuple(t), d) for dtype, s, t, d in forms))

    @property
    def gradients(self) -> tuple[Form, ...]:
        """Of what comes back."""
        return tuple(form for form in self.forms if form.differentiable)


def members(value: Any, whose: str, unfit: Callable[[Any], str]) -> tuple[str, list[Any]]:
    """The kind of `value` and its tensors. `unfit`: of Tensors. Raises UsageError, which says `whose` it is, for what
    has others.
    """
    kind = "tuple" if type(value) is tuple else "list" if type(value) is list else "tensor"
    found = [value] if kind == "tensor" else list(value)
    for one in found:
        what = unfit(one)
        if what:
            where = "" if kind == "tensor" else f" in a {kind}"
            raise UsageError(
                f"{whose} is {what}{where}: expected a dense tensor, or a tuple or list of them.",
                "Use dense tensors, in a tuple or list if there are several.",
            )
    return kind, found


def whole(kind: str, tensors: Sequence[Any]) -> Any:
    """What `members` took apart."""
    if kind == "tensor":
        return tensors[0]
    return tuple(tensors) if kind == "tuple" else list(tensors)
