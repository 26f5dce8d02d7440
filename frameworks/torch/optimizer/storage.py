"""Whether anything but `parameter.grad` uses the memory of a gradient."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge


def lent(gradient: Tensor, handed: Tensor | None) -> bool:
    """Whether `gradient`, a `parameter.grad`, is in memory that something else may still read.

    `handed` is what the backward pass gave the parameter and still holds; None: it is not known. torch takes a first
    gradient over without a copy. Where it is a view, as that of an embedding that is broadcast over the batch, its
    memory is that of an activation's gradient: the rest of the backward pass reads it, other parameters may have been
    given it, too, and a result that is written there changes theirs. Shared is what is not known to be private: the
    storage must be used by `gradient` alone, and by what goes with `handed` right after its hooks.

    False also for memory that torch did not hand over: gradients are added up there anyway, backward pass after
    backward pass (a user's own buffer for all gradients, for example).
    """
    if gradient.layout != torch.strided or gradient.numel() == 0:
        return False
    if handed is not None and (handed.layout != torch.strided or handed.data_ptr() != gradient.data_ptr()):
        return False
    return not (_counts_can_be_trusted() and _private(gradient, handed))


def _private(gradient: Tensor, handed: Tensor | None) -> bool:
    storage = gradient.untyped_storage()
    if not storage.resizable():  # the memory of NumPy, for example, which does not count
        return False
    uses = 2  # by `gradient` and by `storage`
    if handed is not None:
        uses += 1
        base = handed._base
        if base is not None:  # a view holds what it is a view of
            uses += 1
            if _uses(base) != 2:  # by the view and by `base`
                return False
    return _uses(storage) == uses


def _uses(counted: Any) -> int:
    """By how many a storage or a tensor is held. torch's own caches of buffers ask in this way."""
    return int(torch._C._storage_Use_Count(counted._cdata))


@functools.cache
def _counts_can_be_trusted() -> bool:
    """Whether counts are what `_private` expects with this torch; without them every gradient is copied."""
    found: list[bool] = []
    with torch.enable_grad():
        # Handed out by an operation, as a view of a result that nobody else has, and as a view of one that is in use.
        whole, view = (torch.zeros(2, 3, requires_grad=True) for _ in range(2))
        shared, other = (torch.zeros(3, requires_grad=True) for _ in range(2))
        product = torch.mm(whole, view.t()).sum()
        both = (shared.unsqueeze(0) + other.unsqueeze(0)).exp().sum()
        nodes = [get_gradient_edge(parameter).node for parameter in (whole, view, shared)]
        for node, parameter in zip(nodes, (whole, view, shared), strict=True):

            def note(_: Any, handed: Any, parameter: Tensor = parameter) -> None:
                assert parameter.grad is not None
                found.append(_private(parameter.grad, handed[0]))

            node.register_hook(note)
        try:
            product.backward()
            both.backward()
        except (AttributeError, RuntimeError, TypeError):
            return False
    return found == [True, True, False]
