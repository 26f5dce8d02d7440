"""What in_flight() of every optimizer and tape returns, and load_in_flight() takes: plain arrays and numbers.

The same structure for PyTorch, Keras and TensorFlow's tapes, of dicts, lists, tuples, NumPy arrays, numbers and None,
so that anything saves it: pickle, numpy, torch.save. PyTorch's state_dict() has it under "paceline_in_flight" with
tensors in the place of arrays, as torch.load reads them by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from paceline.codecs.travel import Residuals
from paceline.exchange.wire import Bucket, Key

Array = np.ndarray[Any, Any]


class SparseGradient(TypedDict):
    """A sparse gradient with n rows (PyTorch)."""

    indices: Array  # int64, of shape (sparse dimensions, n)
    values: Array  # of shape (n, *dense dimensions)
    shape: Array  # int64: that of the parameter


class Rounds(TypedDict):
    """What a rank with a partial exchange has of one gradient (paceline.partial.state)."""

    send: Array  # of the gradient's shape: what has not left
    results: Array  # of the gradient's shape: what this rank has missed
    rounds: int  # performed so far
    pending: int  # contributions in `send`
    missed: int  # rounds in `results`
    fresh: int  # contributions in time in those


# By the parameter's name (PyTorch), or the variable's index in the optimizer's or tape's list (Keras, tapes).
Gradients = dict[str, Array | SparseGradient | Rounds] | dict[int, Array | Rounds]


class _Further(TypedDict, total=False):
    warm: int  # synchronous updates still to come; not of a partial exchange
    rank: int  # whose this is, of how many ranks; of a partial exchange only
    ranks: int
    staleness: Any  # what compensates for staleness: arrays and numbers, or None
    residuals: Residuals  # of error feedback: this rank's
    weighted: bool  # whether contributions have their weight behind them, as one element more (PyTorch)


class InFlightState(_Further):
    """The updates in flight of one rank; the same on all ranks unless the exchange is partial."""

    k: int  # whose this is (ExchangeSettings.tag): the iteration dependency K; 0: a partial exchange
    # From the oldest to the newest: gradients as they travel (bfloat16 as float32), and the factor that the loss was
    # scaled by, or 1. Of a partial exchange one.
    in_flight: list[tuple[Gradients, float]]


_RESIDUALS = "residuals"
# True in a state of gradients that travelled with weights (PyTorch).
WEIGHTED = "weighted"


def with_residuals(state: dict[str, Any] | None, residuals: Residuals | None, tag: int) -> dict[str, Any] | None:
    """`state`, what an exchange with this tag needs, and residuals; None without either."""
    if residuals is None:
        return state
    return {**({"k": tag, "in_flight": []} if state is None else state), _RESIDUALS: residuals}


def without_residuals(state: dict[str, Any]) -> tuple[dict[str, Any] | None, Residuals | None]:
    """What `with_residuals` was given, without the tag. Any exchange goes on with residuals alone."""
    if _RESIDUALS not in state:
        return state, None
    rest = {key: value for key, value in state.items() if key != _RESIDUALS}
    return None if rest.keys() == {"k", "in_flight"} and not rest["in_flight"] else rest, state[_RESIDUALS]


def grouped(in_flight: Sequence[tuple[Any, float]], buckets: Sequence[Bucket]) -> list[dict[Bucket, list[Any]]]:
    """Per update in flight the values of whole buckets. Raises ValueError if they are others."""
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
