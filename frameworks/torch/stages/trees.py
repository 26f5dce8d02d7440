"""Batches and activations as trees of tensors, flattened by torch's pytree.

Numbers are sent as tensors of one element: their values change between micro-batches, kinds do not. None, strings and
booleans are part of the kind.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from paceline.errors import UsageError
from paceline.stages.execution import activations

_PLAIN = ("tensor", "tuple", "list")
_NUMBERS = {int: torch.int64, float: torch.float64}
_CONSTANTS = (type(None), str, bool)
_REMEDY = (
    "Use dense tensors, numbers, strings and None, in tuples, lists, dictionaries, named tuples, dataclasses, or "
    "classes that torch.utils._pytree knows."
)
_REGISTERING = threading.Lock()


class _Kind(NamedTuple):
    """Form of a tree. `structure`: from _described. `leaves`: "tensor", "number", or a constant in a tuple."""

    dataclasses: tuple[type, ...]
    structure: Any
    leaves: tuple[Any, ...]


def members(value: Any, whose: str, tensors: Any) -> tuple[str, list[Tensor]]:
    """Return the kind of `value` and its tensors; `tensors` decides which tensors are unfit.

    Raises UsageError with the name `whose` if the value cannot be sent.
    """
    if isinstance(value, Tensor) or (type(value) in (tuple, list) and all(isinstance(one, Tensor) for one in value)):
        return activations.members(value, whose, tensors.unfit)
    leaves, spec = flattened(value)
    found: list[Tensor] = []
    kinds: list[Any] = []
    for number, leaf in enumerate(leaves):
        if type(leaf) in _CONSTANTS:
            kinds.append((leaf,))
            continue
        what = _unfit(leaf, tensors)
        if what:
            raise _refused(value, number, whose, what)
        kinds.append("tensor" if isinstance(leaf, Tensor) else "number")
        found.append(leaf if isinstance(leaf, Tensor) else torch.tensor(leaf, dtype=_NUMBERS[type(leaf)]))
    if spec.is_leaf() and not isinstance(value, Tensor):
        raise _refused(value, 0, whose, f"a {type(value).__name__}")
    try:
        encoded = pickle.dumps(_Kind(_dataclasses_in(spec), _described(spec), tuple(kinds)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{whose} has a {_local(spec)}, which other ranks cannot import: {error}", "Define it at a module's level."
        ) from error
    return encoded.decode("latin-1"), found


def whole(kind: str, tensors: Sequence[Tensor]) -> Any:
    """Rebuild a value from its kind and tensors."""
    if kind in _PLAIN:
        return activations.whole(kind, tensors)
    spec, kinds = _decoded(kind)
    remaining = iter(tensors)
    leaves: list[Any] = []
    for one in kinds:
        if isinstance(one, tuple):
            leaves.append(one[0])
        else:
            leaves.append(next(remaining) if one == "tensor" else next(remaining).detach().item())
    return pytree.tree_unflatten(leaves, spec)


def flattened(value: Any) -> tuple[list[Any], Any]:
    """Return leaves and structure. Unregistered dataclasses are registered first, so that they are not leaves."""
    while True:
        leaves, spec = pytree.tree_flatten(value)
        unknown = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(type(leaf))}
        if not unknown:
            return leaves, spec
        _register(unknown)


def _register(classes: Sequence[type] | set[type]) -> None:
    with _REGISTERING:
        for one in classes:
            if one not in pytree.SUPPORTED_NODES:
                pytree.register_dataclass(one)


@functools.lru_cache(maxsize=256)
def _decoded(kind: str) -> tuple[Any, tuple[Any, ...]]:
    found: _Kind = pickle.loads(kind.encode("latin-1"))
    _register(found.dataclasses)
    return _structure(found.structure), found.leaves


def _described(spec: Any) -> Any:
    """Structure as type, context and children; None for a leaf. Pickling a spec itself warns."""
    return None if spec.is_leaf() else (spec.type, spec.context, [_described(one) for one in spec.children()])


def _structure(described: Any) -> Any:
    if described is None:
        return pytree.tree_structure(0)
    kind, context, children = described
    return pytree.TreeSpec(kind, context, [_structure(one) for one in children])


def _dataclasses_in(spec: Any) -> tuple[type, ...]:
    """Dataclasses in a structure, which other ranks must register too."""
    own = (spec.type,) if dataclasses.is_dataclass(spec.type) else ()
    return (*own, *(found for one in spec.children() for found in _dataclasses_in(one)))


def _unfit(leaf: Any, tensors: Any) -> str:
    if type(leaf) is int:
        return "" if -(1 << 63) <= leaf < 1 << 63 else "an int of more than 64 bits"
    return "" if type(leaf) is float else str(tensors.unfit(leaf))


def _refused(value: Any, number: int, whose: str, what: str) -> UsageError:
    path, _ = pytree.tree_flatten_with_path(value)[0][number]
    has = f"has {what} at {pytree.keystr(path)}" if path else f"is {what}"
    return UsageError(f"{whose} {has}: expected tensors, numbers, strings or None.", _REMEDY)


def _local(spec: Any) -> str:
    """Name of the first class in it that is not defined at a module's level; "" if there is none."""
    named = spec.context if isinstance(spec.context, type) else spec.type
    if named is not None and "<locals>" in named.__qualname__:
        return str(named.__name__)
    return next((found for one in spec.children() if (found := _local(one))), "")
