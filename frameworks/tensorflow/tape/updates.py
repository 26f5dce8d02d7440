"""Updates that Keras optimizers skip while a tape has no gradients yet.

The update belongs to an optimizer that does not know the tape. Keras' `apply` finds the tape through the graph (or
eager execution) that contains both. The gradients identify the tape; if they were clipped or scaled, their variables
do.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.exchange.base import Exchange
from paceline.keras3 import on_tensorflow as wire
from paceline.native.library import loaded
from paceline.native.world import process


class _Waiting:
    """Gradients of one exchange that no optimizer has applied yet."""

    def __init__(self, exchange: Exchange, sources: Sequence[Any], grads: Sequence[Any]) -> None:
        self._exchange = weakref.ref(exchange)
        self._grads = [weakref.ref(grad) for grad in grads]
        # Empty if the sources are tensors: their owner is unknown then.
        self.variables = {id(source) for source in sources if isinstance(source, tf.Variable)}
        self.of_tensors = not self.variables

    @property
    def exchange(self) -> Exchange | None:
        """The exchange; None after its variables were deleted."""
        return self._exchange()

    def made(self, grads: Sequence[Any]) -> bool:
        """Return True if one of `grads` is its own, unchanged."""
        known = [reference() for reference in self._grads]
        return any(grad is not None and grad is one for one in known for grad in grads)


class _Updates:
    """Pending and applied updates of a process."""

    def __init__(self) -> None:
        # The optimizer that made, or traced, the last update with an exchange's answers.
        self.appliers: weakref.WeakKeyDictionary[Exchange, weakref.ref[Any]] = weakref.WeakKeyDictionary()
        # Pending gradients, by graph; those of eager execution are separate.
        self.in_graphs: weakref.WeakKeyDictionary[Any, list[_Waiting]] = weakref.WeakKeyDictionary()
        self.eagerly: list[_Waiting] = []


def _updates() -> _Updates:
    return process(loaded("tensorflow")).of(_Updates)


def expect_update(exchange: Exchange, sources: Sequence[Any], grads: Sequence[Any]) -> None:
    """Expect an update of a Keras optimizer in this graph with `grads`, the answers of `exchange` for `sources`."""
    _patch()
    graph, updates = wire.here(), _updates()
    waiting = updates.eagerly if graph is None else updates.in_graphs.setdefault(graph, [])
    waiting[:] = [one for one in waiting if one.exchange not in (None, exchange)]
    waiting.append(_Waiting(exchange, sources, grads))


def applied_in(graph: Any, exchange: Exchange) -> bool:
    """Return whether an update of Keras with the last answers of `exchange` has been traced in this graph."""
    updates = _updates()
    return exchange in updates.appliers and all(
        one.exchange is not exchange for one in updates.in_graphs.get(graph, [])
    )


def applier(exchange: Exchange) -> Any:
    """Return the Keras optimizer that applies the answers of `exchange`; None if there is none or it was deleted."""
    found = _updates().appliers.get(exchange)
    return None if found is None else found()


# An exchange, and the ids of the variables whose gradients it provides in an update; None: all.
_Part = tuple[Exchange, set[int] | None]


def _take(grads: Sequence[Any], variables: Sequence[Any]) -> list[_Part]:
    """Return the exchanges that this update belongs to: of this graph, or of an enclosing one."""
    ids = {id(wire.native(variable)) for variable in variables}
    graph = wire.here()
    while graph is not None:
        taken = _taken_from(_updates().in_graphs.get(graph, []), grads, ids)
        if taken:
            return taken
        graph = getattr(graph, "outer_graph", None)
    return _taken_from(_updates().eagerly, grads, ids) if tf.executing_eagerly() else []


def _taken_from(waiting: list[_Waiting], grads: Sequence[Any], ids: set[int]) -> list[_Part]:
    found = [one for one in waiting if one.made(grads)]
    if not found:
        # Modified gradients. If several are pending for one variable, the oldest is meant.
        open_ids = set(ids)
        for one in waiting:
            if one.variables & open_ids:
                found.append(one)
                open_ids -= one.variables
    found = found or [one for one in waiting if one.of_tensors][:1]
    parts = [(one.exchange, None if one.of_tensors else one.variables & ids) for one in found]
    for one in found:
        # Its other gradients may be for another optimizer.
        one.variables -= ids
        if not one.variables:
            waiting.remove(one)
    return [(exchange, mine) for exchange, mine in parts if exchange is not None]


def _rescaled(scale: Any, parts: list[_Part], grads: list[Any], variables: Sequence[Any]) -> list[Any]:
    """Return `grads` as if their losses had been scaled by `scale`, the factor of this update.

    Raises UserError for an exchange that does not know the factor of its gradients.
    """
    for exchange, mine in parts:
        factor = exchange.rescaled(scale)
        for place, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
            if grad is not None and (mine is None or id(wire.native(variable)) in mine):
                grads[place] = grad * exchange.ops.cast(factor, grad)
    return grads


@functools.cache
def _patch() -> None:
    for optimizer in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        _patch_apply(optimizer)


def _patch_apply(optimizer: Any) -> None:
    original = optimizer.apply

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        parts = _take(grads, variables)
        if not parts:
            return original(self, grads, trainable_variables)
        if trainable_variables is not None and not self.built:
            # TensorFlow creates no variables within a branch of the graph.
            with keras.name_scope(self.name, caller=self):
                self.build(trainable_variables)
            self.built = True
        if isinstance(self, keras.optimizers.LossScaleOptimizer):
            grads = _rescaled(self.dynamic_scale, parts, grads, variables)
        update: Callable[[], Any] = functools.partial(original, self, grads, trainable_variables)
        for exchange, _ in parts:
            _updates().appliers[exchange] = weakref.ref(self)
            update = functools.partial(exchange.update, dict, update)
        return update()

    optimizer.apply = apply
