"""Activations between stages: a tensor, or a tuple or list of tensors, and the signature that describes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.errors import UsageError


class Form(NamedTuple):
    """Description of one tensor.

    Attributes:
        dtype: name of its dtype.
        shape: its shape.
        strides: its strides, in elements.
        differentiable: True if a gradient comes back for it.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    differentiable: bool


class Signature(NamedTuple):
    """Description of a stage's output: `kind` is "tensor", "tuple" or "list"; `forms` describe its tensors."""

    kind: str
    forms: tuple[Form, ...]

    def encode(self) -> bytes:
        """Return the message for the next stage."""
        return json.dumps([self.kind, self.forms]).encode()

    @staticmethod
    def decode(text: bytes) -> Signature:
        """Decode the message."""
        kind, forms = json.loads(text)
        return Signature(kind, tuple(Form(dtype, tuple(s), tuple(t), d) for dtype, s, t, d in forms))

    @property
    def gradients(self) -> tuple[Form, ...]:
        """Forms of the gradients that come back."""
        return tuple(form for form in self.forms if form.differentiable)


def members(value: Any, whose: str, unfit: Callable[[Any], str]) -> tuple[str, list[Any]]:
    """Return the kind of `value` and its tensors. `unfit`: Tensors.unfit.

    Raises UsageError, in which `whose` names the value, unless it consists of dense tensors.
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
    """Return the value that `members` took apart."""
    if kind == "tensor":
        return tensors[0]
    return tuple(tensors) if kind == "tuple" else list(tensors)
