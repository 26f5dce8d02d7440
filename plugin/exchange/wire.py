"""Interface between exchanges and frameworks: submission of tensors, and access to weights.

Exchanges are written once, over a Wire. The Wire of compiled steps has GraphOps, too (ops.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline.codecs.encoding import Encoding
from paceline.exchange.ops import Cell, GraphOps

Array = np.ndarray[Any, Any]
# Unit roundoff of float16.
HALF_ROUNDING = 2.0**-11
# Key of a gradient: its parameter's name (PyTorch), or its variable's index in the optimizer's or tape's list.
Key = str | int
# Waits and returns one result per tensor, in the same order.
Work = Callable[[], list[Any]]
# As Work, or returns None: this update has no results and must not change these parameters.
Answer = Callable[[], list[Any] | None]
# Returns the weights of an optimizer by index in its list; called only where they are needed.
Weights = Callable[[], Mapping[int, Any]]


@dataclass(frozen=True)
class Bucket:
    """Gradients that form one operation.

    `name`: name of the operation; `members`: keys of the gradients, in order.
    """

    name: str
    members: tuple[Key, ...]


class Trial(Protocol):
    """Trial steps, which leave the optimizer unchanged."""

    scale: float  # factor of the loss

    def changes(self) -> Mapping[int, Any]:
        """Return the change of each weight in a step with the last submitted gradients; drop these gradients."""
        ...


class Wire(Protocol):
    """Operations and weights of one optimizer or tape in one framework."""

    library: ctypes.CDLL  # Horovod's
    process_set: Any
    encoding: Encoding  # codec and collective of the gradients

    @property
    def graph_ops(self) -> GraphOps | None:
        """Operations for steps that may be compiled; None where Python sees every update."""
        ...

    @property
    def waits_later(self) -> bool:
        """True if a message may be started in one update and waited for in a later one."""
        ...

    @property
    def label(self) -> str:
        """Name of the optimizer or tape in errors and agreements, equal on all ranks."""
        ...

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False) -> Work:
        """Start to reduce `tensors` under the bucket's name, and return at once.

        `tensors` are dense, of one type and device, and may be overwritten; or one tensor for which `waits_here`. All
        ranks start the same names with the same shapes. `exact`: this time without the codec, under names without its
        mark.
        """
        ...

    def full_names(self, bucket: Bucket, exact: bool = False) -> list[str]:
        """Return Horovod's names of the operations that `start` makes, one per member."""
        ...

    def waits_here(self, tensors: Sequence[Any]) -> bool:
        """Return True if results of these wait in Python.

        These are sparse gradients: they are gathered, and the library has no place for them. `tensors` are tensors or,
        from a saved state, results of `plain`.
        """
        ...

    def start_means(
        self,
        weights: Mapping[int, Any],
        values: Mapping[int, Any] | None = None,
        work: Any = None,
        encoded: bool = False,
        kind: str = "",
    ) -> Callable[[], dict[int, Any]]:
        """Start to average weights over all ranks.

        Args:
            weights: weights by index.
            values: values to average in place of the weights; without them, the weights' memory may be overwritten.
            work: weight of this rank's values. If all ranks have 0, there are no means.
            encoded: through the codec.
            kind: a word in the names, so that means of several kinds may be in flight at the same time.

        Returns:
            A function that waits and returns the means by index, of the weights' types or wider. In a graph this method
            itself waits.
        """
        ...

    def moments(self, weights: Mapping[int, Any]) -> Mapping[str, Mapping[int, Any]]:
        """Return the optimizer's state of each weight, in its shape, by kind, such as running averages of gradients.

        Raises UsageError if there is none.
        """
        ...

    def trial(self) -> Trial:
        """Return trial steps of the optimizer with this rank's own gradients. Raises UsageError if there are none."""
        ...

    def among(self, process_set: Any) -> Wire:
        """Return a wire of the same gradients over another process set, with plain averages."""
        ...

    def shared(self, weights: Mapping[int, Any], members: set[Key]) -> Mapping[int, Any]:
        """Return those of `weights` that ranks share if gradients of `members` are exchanged."""
        ...

    def update_set(self, weights: Mapping[int, Any]) -> frozenset[int] | None:
        """Key of the weights that an update changes; None where every update changes all of them."""
        ...

    def reduces_as(self) -> tuple[bool, float | None]:
        """Return if sums over the ranks are divided by their number, and the unit roundoff of compression.

        It is 0 without compression, None if unknown.
        """
        ...

    # Tensors and weights.

    def like(self, tensor: Any) -> tuple[tuple[int, ...], str]:
        """Return shape and NumPy's name of the dtype."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a tensor of zeros in CPU memory."""
        ...

    def zeros_like(self, tensor: Any) -> Any:
        """Return zeros of a tensor's shape, type and layout."""
        ...

    def as_sent(self, tensor: Any) -> Array:
        """Return a result in its compressed form, as on the wire."""
        ...

    def plain(self, result: Any) -> Any:
        """Return a result as in states: an array, or a dict of arrays (paceline.exchange.in_flight_state)."""
        ...

    def from_plain(self, value: Any) -> Any:
        """Return the result from which `plain` made `value`, for results that wait here."""
        ...

    def value(self, weight: Any) -> Any:
        """Return the tensor in a weight, without its gradient."""
        ...

    def trains(self, weight: Any) -> bool:
        """Return True if a weight is currently trained, that is, not frozen."""
        ...

    def copy(self, tensor: Any) -> Any:
        """Return a copy of a tensor that later changes do not affect."""
        ...

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """Select from two tensors, element by element."""
        ...

    def assign(self, weight: Any, value: Any) -> None:
        """Replace a weight's values by a tensor, or by an array of a saved state."""
        ...

    def cell_of(self, weight: Any) -> Cell:
        """Return a cell with a weight's current values, of its type and on its device."""
        ...

    def rescheduled(self, rate: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """Return a context in which `rate` replaces learning rates, for optimizers that do not call it themselves."""
        ...
