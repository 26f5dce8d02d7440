"""Hooks that see a gradient before and after it is added to `parameter.grad`, and whose memory it is in then.

They are hooks of the node of the graph that adds it, not of the tensor. A tensor's hooks run in torch.autograd.grad as
well, where `parameter.grad` does not change, and among the user's in the order of registration; the node's run in
backward passes alone, before and after all of those.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from paceline.torch.optimizer.weighing import times

if TYPE_CHECKING:
    from paceline.torch.optimizer.reduction import Reduction


class Hooked:
    """A parameter, a leaf, that is watched as long as this object and its observer live, or until `unwatch`.

    A frozen parameter is watched as well: it is seen as soon as it is unfrozen.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self._unwatch: Callable[[], object] | None = None

    @property
    def watched(self) -> bool:
        """Whether there are hooks."""
        return self._unwatch is not None

    def watch(self, observer: Reduction) -> None:
        """Call `observer` for each gradient, in the thread that runs the backward pass of the parameter's device.

        `arriving`: it will be added to `parameter.grad`, times the number that it returns, if any; an exception
        prevents it. `arrived`: what was handed out was added (None: unknown), and the user's hooks have run.
        """
        # The node holds the parameter, and both hold their hooks where no garbage collector looks: what these hold in
        # turn they hold weakly.
        self._observer = weakref.ref(observer)
        self._announced = False
        self._removals: list[Callable[[], None]] = []
        self._unwatch = weakref.finalize(self, _call_all, self._removals)
        # A frozen parameter takes no hook, but keeps one.
        frozen = not self.parameter.requires_grad
        if frozen:
            self.parameter.requires_grad_(True)
        self._removals.append(self.parameter.register_post_accumulate_grad_hook(self._guard()).remove)
        self._attach()
        if frozen:
            self.parameter.requires_grad_(False)

    def unwatch(self) -> None:
        """Remove the hooks, if there are any."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    # The functions below run for every gradient: they are written out, without a call between.

    def _attach(self) -> None:
        # Held, because it goes, with its hooks, when nobody holds it.
        self._node = get_gradient_edge(self.parameter).node
        reference: Any = weakref.ref(self)

        def before(gradients: Any) -> Any:
            hooked = reference()
            if hooked is not None and (observer := hooked._observer()) is not None:
                factor = observer.arriving(hooked)
                hooked._announced = True
                if factor is not None:
                    return tuple(None if one is None else times(one, factor) for one in gradients)
            return None

        def after(gradients: Any, handed: tuple[Tensor | None, ...]) -> None:
            hooked = reference()
            if hooked is not None and (observer := hooked._observer()) is not None:
                observer.arrived(hooked, handed[0] if handed else None)

        self._before = before
        for handle in (self._node.register_prehook(before), self._node.register_hook(after)):
            self._removals.append(handle.remove)

    def _guard(self) -> Callable[[Tensor], None]:
        """A hook of the tensor, which runs between the other two; it stays when the node is replaced.

        torch gives a parameter a new node when the type or device of its data changes. Its hooks can still be added
        here, in time to run after this very gradient.
        """
        reference: Any = weakref.ref(self)

        def accumulated(parameter: Tensor) -> None:
            hooked = reference()
            if hooked is not None:
                if not hooked._announced:
                    hooked._attach()
                    (grad,) = hooked._before((parameter.grad,)) or (None,)  # torch has let go the one of before
                    if grad is not None:
                        parameter.grad = grad
                hooked._announced = False

        return accumulated


def _call_all(removals: list[Callable[[], None]]) -> None:
    for remove in removals:
        remove()


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
