"""Hooks before and after a gradient is added to `parameter.grad`, and a check of who else uses its memory.

They are hooks of the graph node that adds the gradient, not of the tensor. A tensor's hooks run in torch.autograd.grad
as well, where `parameter.grad` does not change, and among the user's in the order of registration. The node's hooks run
only in backward passes, before and after all of those.
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
    """A leaf parameter that is watched as long as this object and its observer live, or until `unwatch`.

    A frozen parameter is watched as well: its gradients are seen as soon as it is unfrozen.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self._unwatch: Callable[[], object] | None = None

    @property
    def watched(self) -> bool:
        """True if there are hooks."""
        return self._unwatch is not None

    def watch(self, observer: Reduction) -> None:
        """Call `observer` for each gradient, in the thread that runs the backward pass of the parameter's device.

        `arriving`: called before the gradient is added to `parameter.grad`, times the returned number, if any; an
        exception prevents it. `arrived`: called with the added gradient (None: unknown), after the user's hooks.
        """
        # The node holds the parameter, and both hold their hooks invisibly to the garbage collector. So the hooks only
        # hold weak references.
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

    # The functions below run for every gradient: they are inlined by hand.

    def _attach(self) -> None:
        # Held, because otherwise the node is deleted, with its hooks.
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

        def after(gradients: Any, passed: tuple[Tensor | None, ...]) -> None:
            hooked = reference()
            if hooked is not None and (observer := hooked._observer()) is not None:
                observer.arrived(hooked, passed[0] if passed else None)

        self._before = before
        for handle in (self._node.register_prehook(before), self._node.register_hook(after)):
            self._removals.append(handle.remove)

    def _guard(self) -> Callable[[Tensor], None]:
        """Return a hook of the tensor that runs between the other two; it stays when the node is replaced.

        torch gives a parameter a new node when the type or device of its data changes. Here the node's hooks can still
        be added, in time to run after this very gradient.
        """
        reference: Any = weakref.ref(self)

        def accumulated(parameter: Tensor) -> None:
            hooked = reference()
            if hooked is not None:
                if not hooked._announced:
                    hooked._attach()
                    (grad,) = hooked._before((parameter.grad,)) or (None,)  # torch has released the previous one
                    if grad is not None:
                        parameter.grad = grad
                hooked._announced = False

        return accumulated


def _call_all(removals: list[Callable[[], None]]) -> None:
    for remove in removals:
        remove()


def lent(gradient: Tensor, passed: Tensor | None) -> bool:
    """True if `gradient`, a `parameter.grad`, is in memory that something else may still read.

    `passed`: the tensor that the backward pass gave the parameter and still holds; None: unknown. torch takes over a
    first gradient without a copy. It may be a view, as for an embedding that is broadcast over the batch; then its
    memory is an activation's gradient. The rest of the backward pass reads that, other parameters may have got it too,
    and a result written there changes theirs. Memory is private only if the storage is used by `gradient` alone, and by
    objects that are released with `passed` right after its hooks.

    False also for memory that did not come from torch: gradients are accumulated there anyway, pass after pass (a
    user's own buffer for all gradients, for example).
    """
    if gradient.layout != torch.strided or gradient.numel() == 0:
        return False
    if passed is not None and (passed.layout != torch.strided or passed.data_ptr() != gradient.data_ptr()):
        return False
    return not (_counts_can_be_trusted() and _private(gradient, passed))


def _private(gradient: Tensor, passed: Tensor | None) -> bool:
    storage = gradient.untyped_storage()
    if not storage.resizable():  # the memory of NumPy, for example, which has no count
        return False
    uses = 2  # by `gradient` and by `storage`
    if passed is not None:
        uses += 1
        base = passed._base
        if base is not None:  # a view holds its base
            uses += 1
            if _uses(base) != 2:  # by the view and by `base`
                return False
    return _uses(storage) == uses


def _uses(counted: Any) -> int:
    """Number of references to a storage or a tensor, read as torch's own buffer caches do."""
    return int(torch._C._storage_Use_Count(counted._cdata))


@functools.cache
def _counts_can_be_trusted() -> bool:
    """True if counts are as `_private` expects with this torch; otherwise every gradient is copied."""
    found: list[bool] = []
    with torch.enable_grad():
        # Gradients made by an operation, as a view of an unshared result, and as a view of a shared one.
        whole, view = (torch.zeros(2, 3, requires_grad=True) for _ in range(2))
        shared, other = (torch.zeros(3, requires_grad=True) for _ in range(2))
        product = torch.mm(whole, view.t()).sum()
        both = (shared.unsqueeze(0) + other.unsqueeze(0)).exp().sum()
        nodes = [get_gradient_edge(parameter).node for parameter in (whole, view, shared)]
        for node, parameter in zip(nodes, (whole, view, shared), strict=True):

            def note(_: Any, passed: Any, parameter: Tensor = parameter) -> None:
                assert parameter.grad is not None
                found.append(_private(parameter.grad, passed[0]))

            node.register_hook(note)
        try:
            product.backward()
            both.backward()
        except (AttributeError, RuntimeError, TypeError):
            return False
    return found == [True, True, False]
