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


class Observer(Protocol):
    """Who is told of gradients, in the thread that runs the backward pass of the parameter's device."""

    def arriving(self, parameter: Tensor) -> None:
        """A gradient will be added to `parameter.grad`; an exception prevents it."""
        ...

    def arrived(self, parameter: Tensor, handed: Tensor | None) -> None:
        """The gradient `handed` was added to `parameter.grad`, and the user's hooks have run; None: unknown."""
        ...


class GradientHooks:
    """The hooks of `parameter`, a leaf, which last as long as this object and `observer` do.

    A frozen parameter is watched as well: it is seen as soon as it is unfrozen.
    """

    def __init__(self, parameter: Tensor, observer: Observer) -> None:
        # The node holds the parameter, and both hold their hooks where no garbage collector looks: what these hold in
        # turn they hold weakly.
        self._parameter = weakref.ref(parameter)
        self._observer = weakref.ref(observer)
        self._announced = False
        self._removals: list[Callable[[], None]] = []
        weakref.finalize(self, _call_all, self._removals)
        # A frozen parameter takes no hook, but keeps one.
        frozen = not parameter.requires_grad
        if frozen:
            parameter.requires_grad_(True)
        guard = parameter.register_post_accumulate_grad_hook(_weak(self, GradientHooks._accumulated))
        self._removals.append(guard.remove)
        self._attach(parameter)
        if frozen:
            parameter.requires_grad_(False)

    def _attach(self, parameter: Tensor) -> None:
        self._node = get_gradient_edge(parameter).node  # held, because it goes, with its hooks, when nobody holds it
        for handle in (
            self._node.register_prehook(_weak(self, GradientHooks._before)),
            self._node.register_hook(_weak(self, GradientHooks._after)),
        ):
            self._removals.append(handle.remove)

    def _before(self, gradients: Any) -> None:
        parameter, observer = self._parameter(), self._observer()
        if parameter is not None and observer is not None:
            observer.arriving(parameter)
            self._announced = True

    def _accumulated(self, parameter: Tensor) -> None:
        """A hook of the tensor, which runs between the other two; it stays when the node is replaced.

        torch gives a parameter a new node when the type or device of its data changes. Its hooks can still be added
        here, in time to run after this very gradient.
        """
        if not self._announced:
            self._attach(parameter)
            self._before(())
        self._announced = False

    def _after(self, gradients: Any, handed: tuple[Tensor | None, ...]) -> None:
        parameter, observer = self._parameter(), self._observer()
        if parameter is not None and observer is not None:
            observer.arrived(parameter, handed[0] if handed else None)


def _weak(hooks: GradientHooks, method: Callable[..., None]) -> Callable[..., None]:
    """`method` of `hooks` while these live, then nothing."""
    reference = weakref.ref(hooks)

    def call(*args: Any) -> None:
        alive = reference()
        if alive is not None:
            method(alive, *args)

    return call


def _call_all(removals: list[Callable[[], None]]) -> None:
    for remove in removals:
        remove()
