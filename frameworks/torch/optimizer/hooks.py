"""Hooks that see a gradient before and after it is added to `parameter.grad`.

They are hooks of the node of the graph that adds it, not of the tensor. A tensor's hooks run in torch.autograd.grad as
well, where `parameter.grad` does not change, and among the user's in the order of registration; the node's run in
backward passes alone, before and after all of those.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from paceline.torch.optimizer.member import Member


class Observer(Protocol):
    """Who is told of gradients, in the thread that runs the backward pass of the parameter's device."""

    def arriving(self, member: Member) -> None:
        """A gradient will be added to `parameter.grad`; an exception prevents it."""
        ...

    def arrived(self, member: Member, handed: Tensor | None) -> None:
        """The gradient `handed` was added to `parameter.grad`, and the user's hooks have run; None: unknown."""
        ...


class GradientHooks:
    """The hooks of a member's parameter, a leaf, which last as long as this object and `observer` do.

    A frozen parameter is watched as well: it is seen as soon as it is unfrozen.
    """

    def __init__(self, member: Member, observer: Observer) -> None:
        # The node holds the parameter, and both hold their hooks where no garbage collector looks: what these hold in
        # turn they hold weakly.
        self._member = member
        self._observer = weakref.ref(observer)
        self._announced = False
        self._removals: list[Callable[[], None]] = []
        weakref.finalize(self, _call_all, self._removals)
        # A frozen parameter takes no hook, but keeps one.
        parameter = member.parameter
        frozen = not parameter.requires_grad
        if frozen:
            parameter.requires_grad_(True)
        self._removals.append(parameter.register_post_accumulate_grad_hook(self._guard()).remove)
        self._attach()
        if frozen:
            parameter.requires_grad_(False)

    # The functions below run for every gradient: they are written out, without a call between.

    def _attach(self) -> None:
        # Held, because it goes, with its hooks, when nobody holds it.
        self._node = get_gradient_edge(self._member.parameter).node
        reference = weakref.ref(self)

        def before(gradients: Any) -> None:
            hooks = reference()
            if hooks is not None and (observer := hooks._observer()) is not None:
                observer.arriving(hooks._member)
                hooks._announced = True

        def after(gradients: Any, handed: tuple[Tensor | None, ...]) -> None:
            hooks = reference()
            if hooks is not None and (observer := hooks._observer()) is not None:
                observer.arrived(hooks._member, handed[0] if handed else None)

        self._before = before
        for handle in (self._node.register_prehook(before), self._node.register_hook(after)):
            self._removals.append(handle.remove)

    def _guard(self) -> Callable[[Tensor], None]:
        """A hook of the tensor, which runs between the other two; it stays when the node is replaced.

        torch gives a parameter a new node when the type or device of its data changes. Its hooks can still be added
        here, in time to run after this very gradient.
        """
        reference = weakref.ref(self)

        def accumulated(parameter: Tensor) -> None:
            hooks = reference()
            if hooks is not None:
                if not hooks._announced:
                    hooks._attach()
                    hooks._before(())
                hooks._announced = False

        return accumulated


def _call_all(removals: list[Callable[[], None]]) -> None:
    for remove in removals:
        remove()
