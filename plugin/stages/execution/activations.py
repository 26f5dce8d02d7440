"""What travels between stages: a tensor, or a tuple or list of tensors; and what tells the next stage its form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.errors import UsageError


@dataclass(frozen=True)
class Form:
    """Of one tensor: its dtype's name, shape, strides in elements, and whether a gradient comes back for it."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    differentiable: bool

    def empty(self, device: torch.device) -> Tensor:
        """Memory for such a tensor; on the host, where messages arrive, and pinned if `device` is a GPU."""
        pinned = device.type == "cuda"
        return torch.empty_strided(self.shape, self.strides, dtype=getattr(torch, self.dtype), pin_memory=pinned)


@dataclass(frozen=True)
class Signature:
    """Of all that a stage hands on: "tensor", "tuple" or "list", and its members."""

    kind: str
    forms: tuple[Form, ...]

    def encode(self) -> bytes:
        """For the next stage."""
        return json.dumps([self.kind, [astuple(form) for form in self.forms]]).encode()

    @staticmethod
    def decode(text: bytes) -> Signature:
        """What `encode` made."""
        kind, forms = json.loads(text)
        return Signature(kind, tuple(Form(dtype, tuple(s), tuple(t), d) for dtype, s, t, d in forms))

    @property
    def gradients(self) -> tuple[Form, ...]:
        """Of what comes back."""
        return tuple(form for form in self.forms if form.differentiable)


def members(value: Any, whose: str) -> tuple[str, list[Tensor]]:
    """The kind of `value` and its tensors. Raises UsageError, which says `whose` it is, for what has others."""
    kind = "tuple" if type(value) is tuple else "list" if type(value) is list else "tensor"
    found = [value] if kind == "tensor" else list(value)
    for one in found:
        if not isinstance(one, Tensor) or one.layout != torch.strided:
            what = f"a {one.layout} tensor" if isinstance(one, Tensor) else f"a {type(one).__name__}"
            where = "" if kind == "tensor" else f" in a {kind}"
            raise UsageError(
                f"{whose} is {what}{where}: expected a dense tensor, or a tuple or list of them.",
                "Use dense tensors, in a tuple or list if there are several.",
            )
    return kind, found


def whole(kind: str, tensors: Sequence[Tensor]) -> Any:
    """What `members` took apart."""
    if kind == "tensor":
        return tensors[0]
    return tuple(tensors) if kind == "tuple" else list(tensors)


def travelling(tensor: Tensor) -> Tensor:
    """`tensor` in memory of the host without gaps: itself where it is so already."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not _dense(tensor):
        tensor = tensor.contiguous()
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def _dense(tensor: Tensor) -> bool:
    """Whether its elements fill one piece of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def signature(kind: str, tensors: Sequence[Tensor], differentiable: Sequence[bool]) -> Signature:
    """Of tensors as they travel."""
    return Signature(
        kind,
        tuple(
            Form(str(one.dtype).removeprefix("torch."), tuple(one.shape), one.stride(), with_gradient)
            for one, with_gradient in zip(tensors, differentiable, strict=True)
        ),
    )
