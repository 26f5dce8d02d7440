"""Structure of the states that in_flight() returns and load_in_flight() accepts, with plain arrays and numbers.

PyTorch, Keras and TensorFlow's tapes use the same structure of dicts, lists, tuples, NumPy arrays, numbers and None, so
that anything can save it: pickle, numpy, torch.save. PyTorch's state_dict() has it under "paceline_in_flight" with
tensors in place of arrays, as torch.load reads them by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from paceline.codecs.encoding import Residuals
from paceline.exchange.wire import Bucket, Key

Array = np.ndarray[Any, Any]


class SparseGradient(TypedDict):
    """A sparse gradient with n rows (PyTorch)."""

    indices: Array  # int64, of shape (sparse dimensions, n)
    values: Array  # of shape (n, *dense dimensions)
    shape: Array  # int64: that of the parameter


class Rounds(TypedDict):
    """State of one gradient on one rank under a partial exchange (paceline.partial.state)."""

    send: Array  # of the gradient's shape: contributions not sent yet
    results: Array  # of the gradient's shape: results that this rank has missed
    rounds: int  # performed so far
    pending: int  # contributions in `send`
    missed: int  # rounds in `results`
    fresh: int  # contributions in time in `results`


# By the parameter's name (PyTorch), or the variable's index in the optimizer's or tape's list (Keras, tapes).
Gradients = dict[str, Array | SparseGradient | Rounds] | dict[int, Array | Rounds]


class _Further(TypedDict, total=False):
    warm: int  # synchronous updates still to come; not with a partial exchange
    rank: int  # owner of this state; only with a partial exchange
    ranks: int  # number of ranks; only with a partial exchange
    staleness: Any  # state of the compensation: arrays and numbers, or None
    residuals: Residuals  # this rank's residuals of error feedback
    weighted: bool  # True if contributions have their weight appended as one more element (PyTorch)


class InFlightState(_Further):
    """The updates in flight on one rank; equal on all ranks unless the exchange is partial."""

    k: int  # tag of the exchange (ExchangeSettings.tag): the iteration dependency K; 0: a partial exchange
    # From the oldest to the newest: gradients in the type on the wire (bfloat16 as float32), and the factor of the
    # loss, or 1. A partial exchange has one entry.
    in_flight: list[tuple[Gradients, float]]


_RESIDUALS = "residuals"
# True in a state of weighted gradients (PyTorch).
WEIGHTED = "weighted"


def with_residuals(state: dict[str, Any] | None, residuals: Residuals | None, tag: int) -> dict[str, Any] | None:
    """Return `state`, of an exchange with this tag, together with residuals; None without either."""
    if residuals is None:
        return state
    return {**({"k": tag, "in_flight": []} if state is None else state), _RESIDUALS: residuals}


def without_residuals(state: dict[str, Any]) -> tuple[dict[str, Any] | None, Residuals | None]:
    """Return state and residuals that `with_residuals` joined. Any exchange can continue with residuals alone."""
    if _RESIDUALS not in state:
        return state, None
    rest = {key: value for key, value in state.items() if key != _RESIDUALS}
    return None if rest.keys() == {"k", "in_flight"} and not rest["in_flight"] else rest, state[_RESIDUALS]


def grouped(in_flight: Sequence[tuple[Any, float]], buckets: Sequence[Bucket]) -> list[dict[Bucket, list[Any]]]:
    """Return the values of whole buckets for each update in flight. Raises ValueError for other gradients."""
    updates = []
    for results, _ in in_flight:
        known = [bucket for bucket in buckets if bucket.members[0] in results]
        missing = [member for bucket in buckets for member in bucket.members if member not in results]
        whole: set[Key] = {member for bucket in known for member in bucket.members}
        if whole != set(results):
            raise ValueError(
                f"it has gradients in flight of {', '.join(map(repr, sorted(results)))}, "
                f"and none of {', '.join(map(repr, missing))}"
            )
        updates.append({bucket: [results[member] for member in bucket.members] for bucket in known})
    return updates
