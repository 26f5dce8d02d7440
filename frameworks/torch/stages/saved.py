"""Replace the weights that a graph has saved for its backward pass.

Autograd nodes save tensors for the backward pass. Tensors in a weight's memory are replaced by a record of the weight
and the part of it. When the backward pass needs the part, it requests the weight. Everything else stays saved as it
was: autograd checks that it was not changed in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import SavedTensor

_PREFIX = "_raw_saved_"


def replace(outputs: Iterable[Tensor], weights: Sequence[Tensor], instead: Callable[[int], Tensor]) -> int:
    """Make the graph of `outputs` use `instead(number)` for tensors saved from `weights[number]`.

    `instead` is called when the backward pass needs such a tensor; it returns a tensor of the weight's form. Operations
    written in C++ outside PyTorch do not show their saved tensors: they use the newest weights. Returns the number of
    replacements.
    """
    numbers: dict[int, list[int]] = {}
    for number, weight in enumerate(weights):
        if weight.numel():
            numbers.setdefault(weight.untyped_storage().data_ptr(), []).append(number)
    replaced = 0
    for node in _nodes(outputs):
        for saved in _saved(node):
            tensor = saved.data
            # Not a tensor: nothing was saved, or another hook holds it, such as a checkpoint's.
            if saved.unpack_hook is not None or not isinstance(tensor, Tensor):
                continue
            if not tensor.numel() or tensor.layout != torch.strided:
                continue
            for number in numbers.get(tensor.untyped_storage().data_ptr(), ()):
                if _within(tensor, weights[number]):
                    saved.register_hooks(*_hooks(number, weights[number], instead))
                    replaced += 1
                    break
    return replaced


def _within(part: Tensor, weight: Tensor) -> bool:
    """True if `part`, of the same memory, begins within `weight`."""
    begin = weight.storage_offset()
    return part.dtype == weight.dtype and begin <= part.storage_offset() < begin + weight.numel()


def _hooks(
    number: int, weight: Tensor, instead: Callable[[int], Tensor]
) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
    begin = weight.storage_offset()

    def note(saved: Tensor) -> tuple[torch.Size, tuple[int, ...], int]:
        return saved.shape, saved.stride(), saved.storage_offset() - begin

    def weight_for(part: tuple[torch.Size, tuple[int, ...], int]) -> Tensor:
        whole = instead(number)
        shape, strides, offset = part
        return whole.as_strided(shape, strides, whole.storage_offset() + offset)

    return note, weight_for


def _nodes(outputs: Iterable[Tensor]) -> Iterator[Any]:
    """Yield all nodes of the graph of `outputs`, each once."""
    waiting = [output.grad_fn for output in outputs]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(before for before, _ in node.next_functions)


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """Names of the attributes in which nodes of this type save tensors."""
    return tuple(name for name in dir(kind) if name.startswith(_PREFIX))


def _saved(node: Any) -> Iterator[Any]:
    kind: Any = type(node)
    for name in _names(kind):
        held = getattr(node, name)
        for one in held if isinstance(held, (tuple, list)) else (held,):
            if isinstance(one, SavedTensor):
                yield one
