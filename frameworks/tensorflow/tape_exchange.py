"""Exchanges of tapes that are not synchronous, and the updates that optimizers leave out where a tape has no answer.

A tape is made anew in every step, so its pipeline is kept here, by the tape's name. The update belongs to an optimizer
that knows nothing of the tape: Keras' `apply` is told through the graph (or eager step) in which both stand.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.errors import UserError
from paceline.exchange import Exchange
from paceline.partial import Partial
from paceline.partial_updates import PartialUpdates
from paceline.pipelined import Pipelined
from paceline.tensorflow.host import horovod_tensorflow, wire
from paceline.tensorflow.partial import partial_updates
from paceline.tensorflow.pipelined import GraphPipeline
from paceline.updates_in_flight import Reduce

TAPE_NAME = "DistributedGradientTape"

# By name and process set.
_pipelines: dict[tuple[str, int], tuple[GraphPipeline | PartialUpdates, Exchange]] = {}
_to_load: dict[tuple[str, int], dict[str, Any]] = {}
# Pipelines whose gradients wait for an optimizer, by graph; of eager execution under None.
_waiting: weakref.WeakKeyDictionary[Any, GraphPipeline | PartialUpdates] = weakref.WeakKeyDictionary()
_waiting_eagerly: list[GraphPipeline | PartialUpdates] = []


def pipeline_of(exchange: Exchange) -> Callable[[Any, Reduce], GraphPipeline | PartialUpdates] | None:
    """What `Settings.exchange` is for tapes with this exchange; None: synchronous.

    Raises UserError for one that helps against staleness or averages models: that needs the optimizer, which a tape
    does not know.
    """
    if exchange == Pipelined(k=1):
        return None
    if isinstance(exchange, Pipelined) and exchange.helps:
        raise UserError(
            f"A tape was given anneal_steps={exchange.anneal_steps} and correction={exchange.correction}.",
            "Use hvd.DistributedOptimizer of paceline.keras, which helps against staleness, or leave both out.",
        )

    if isinstance(exchange, Partial) and exchange.sync_every:
        raise UserError(
            f"A tape was given sync_every={exchange.sync_every}; it does not know when the model is updated.",
            "Leave sync_every (PACELINE_PARTIAL_SYNC_EVERY) out, and call hvd.average_variables("
            "model.trainable_variables) on all ranks after as many updates; or use hvd.DistributedOptimizer.",
        )

    def make(settings: Any, reduce: Reduce) -> GraphPipeline | PartialUpdates:
        key = (settings.name, settings.process_set.process_set_id)
        known, choice = _pipelines.get(key, (None, None))
        if known is not None and choice == exchange:
            return known
        if known is not None:
            known.forget()
        made: GraphPipeline | PartialUpdates
        if isinstance(exchange, Partial):
            made = partial_updates(exchange, settings, reduce)
        else:
            made = GraphPipeline(exchange, settings, reduce)
        made.loading = _to_load.pop(key, None)
        _pipelines[key] = made, exchange
        return made

    return make


def drain_tape(optimizer: Any, variables: Sequence[Any], name: str = TAPE_NAME, process_set: Any = None) -> int:
    """Make the updates whose gradients are in flight, with an optimizer of Keras; returns how many.

    `variables`: the sources of the tape, in the same order; `name` and `process_set`: as the tape was given. All ranks
    must call it after the same update. The next K - 1 updates will be left out, as at the beginning.
    """
    pipeline, _ = _pipelines.get(_key(name, process_set), (None, None))
    updates = pipeline.drain() if pipeline is not None else []
    for results, _ in updates:
        chosen = [variables[place] for place in results]
        optimizer.apply(wire.tensors_like(list(results.values()), chosen), chosen)
    return len(updates)


def tape_in_flight(name: str = TAPE_NAME, process_set: Any = None) -> dict[str, Any] | None:
    """The gradients in flight of tapes of this name, as NumPy arrays, to be saved; None if there are none."""
    pipeline, _ = _pipelines.get(_key(name, process_set), (None, None))
    return None if pipeline is None else pipeline.state()


def load_tape_in_flight(state: dict[str, Any] | None, name: str = TAPE_NAME, process_set: Any = None) -> None:
    """Go on with what `tape_in_flight` returned, from the next step on; before the step is compiled, on all ranks."""
    key = _key(name, process_set)
    known, _ = _pipelines.get(key, (None, None))
    if known is not None:
        known.forget()
        known.loading = state
    elif state is not None:
        _to_load[key] = state


def _key(name: str, process_set: Any) -> tuple[str, int]:
    return name, (horovod_tensorflow.global_process_set if process_set is None else process_set).process_set_id


def expect_update(pipeline: GraphPipeline | PartialUpdates) -> None:
    """The next update of a Keras optimizer in this graph uses the gradients of `pipeline`."""
    _patch()
    graph = wire.here()
    if graph is None:
        _waiting_eagerly[:] = [pipeline]
    else:
        _waiting[graph] = pipeline


def _take() -> GraphPipeline | PartialUpdates | None:
    """The pipeline that this update belongs to: of this graph, or of one around it."""
    graph = wire.here()
    while graph is not None:
        if graph in _waiting:
            return _waiting.pop(graph)
        graph = getattr(graph, "outer_graph", None)
    return _waiting_eagerly.pop() if _waiting_eagerly and tf.executing_eagerly() else None


@functools.cache
def _patch() -> None:
    for optimizer in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        _patch_apply(optimizer)


def _patch_apply(optimizer: Any) -> None:
    original = optimizer.apply

    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        pipeline = _take()
        if pipeline is None:
            return original(self, grads, trainable_variables)
        grads = list(grads)
        if trainable_variables is not None and not self.built:
            # TensorFlow makes no variables within a branch of the graph.
            trainable_variables = list(trainable_variables)
            with keras.name_scope(self.name, caller=self):
                self.build(trainable_variables)
            self.built = True
        return pipeline.when_answered(lambda: original(self, grads, trainable_variables), lambda: None)

    optimizer.apply = apply
