"""Exchanges of a Keras optimizer that are not synchronous, for the backend in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.exchange.agreement import Exchange
from paceline.keras.backend import keras
from paceline.keras.local.averaging import ModelAveraging
from paceline.keras.pipelined.compensation import StalenessHelp
from paceline.keras.pipelined.exchange import EagerPipeline
from paceline.partial.settings import Partial
from paceline.partial.updates import PartialUpdates
from paceline.pipelined.updates_in_flight import Reduce, UpdatesInFlight


def exchange_of(exchange: Exchange) -> Callable[[Any, Reduce], UpdatesInFlight | PartialUpdates] | None:
    """What `Settings.exchange` is for `exchange`: makes that of one optimizer. None: synchronous."""
    if isinstance(exchange, Partial):
        return lambda settings, reduce: _partial(exchange, settings, reduce)
    pipelined = exchange
    if pipelined.k == 1:
        return None

    def make(settings: Any, reduce: Reduce) -> UpdatesInFlight:
        made: UpdatesInFlight
        if keras.backend.backend() == "tensorflow":
            from paceline.tensorflow.pipelined.operations import GraphPipeline

            made = GraphPipeline(pipelined, settings, reduce)
        else:
            made = EagerPipeline(pipelined, settings, reduce)
        if pipelined.helps:
            made.help = StalenessHelp(pipelined)
        return made

    return make


def _partial(partial: Partial, settings: Any, reduce: Reduce) -> PartialUpdates:
    made = _partial_updates(partial, settings, reduce)
    if partial.sync_every:
        made.help = ModelAveraging(partial.sync_every, made, made.settings)
    return made


def _partial_updates(partial: Partial, settings: Any, reduce: Reduce) -> PartialUpdates:
    if keras.backend.backend() == "tensorflow":
        from paceline.tensorflow.partial.exchange import partial_updates as of_tensorflow

        return of_tensorflow(partial, settings, reduce)
    import torch

    def zeros(shape: Any, dtype: str) -> Any:
        return torch.zeros(shape, dtype=getattr(torch, dtype))

    return PartialUpdates(partial, settings, reduce, "torch", zeros, lambda reduce, tensors: reduce(tensors))
