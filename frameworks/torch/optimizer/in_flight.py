"""Gradients in flight of a PyTorch optimizer, in the form of saved states: by the names of parameters."""

from __future__ import annotations

from typing import Any

from paceline.exchange.base import Exchange
from paceline.exchange.in_flight_state import WEIGHTED
from paceline.exchange.weighing import with_ones
from paceline.exchange.wire import Weights
from paceline.torch.optimizer.buckets import Buckets


def saved(exchange: Exchange, buckets: Buckets) -> dict[str, Any] | None:
    """Return the state in flight; None if nothing is."""
    state = exchange.state()
    if state is None:
        return None
    found = [(buckets.by_name(exchange, one), scale) for one, scale in state["in_flight"]]
    return {**state, "in_flight": found}


def load(exchange: Exchange, buckets: Buckets, state: dict[str, Any], weights: Weights) -> None:
    """Continue with the result of `saved`, of another optimizer of the same parameters."""
    if state.get(WEIGHTED):
        state = {**state, "in_flight": [(with_ones(one), scale) for one, scale in state["in_flight"]]}
    found = {name for results, _ in state["in_flight"] for name in results}
    buckets.stay_single(found)
    active = list(dict.fromkeys(buckets.of[gradient].active() for gradient in buckets.all))
    exchange.load(state, [bucket.identity for bucket in active], weights)
    last_bucket = {name: bucket.names for bucket in active for name in bucket.names if name in found}
    for gradient in buckets.all:
        gradient.last_bucket = last_bucket.get(gradient.name, ())
