"""What an exchange needs of a framework: how tensors travel.

Exchanges are written once, over a Wire. That of compiled steps has GraphOps, too (ops.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from paceline.codecs.travel import Travel
from paceline.exchange.ops import Cell, GraphOps

Array = np.ndarray[Any, Any]
# Whose a gradient is: a parameter's name (PyTorch), or a variable's index in the optimizer's or tape's list.
Key = str | int
# Waits and gives one result per tensor, in the same order.
Work = Callable[[], list[Any]]
# The same, or None: there are no results in this update, which is to leave these parameters as they are.
Answer = Callable[[], list[Any] | None]
# What an optimizer updates, by index in its list; made only where something is done with it.
Weights = Callable[[], Mapping[int, Any]]


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel as one operation. `name`: of the operation; `members`: whose they are, in order."""

    name: str
    members: tuple[Key, ...]


class Trial(Protocol):
    """Steps that leave an optimizer as it was."""

    scale: float  # that the loss was multiplied by

    def changes(self) -> Mapping[int, Any]:
        """Return the change of each weight in a step with the gradients that were submitted last; drop these."""
        ...


class Wire(Protocol):
    """What one optimizer or tape in one framework submits, and its weights."""

    library: ctypes.CDLL  # Horovod's
    process_set: Any
    travel: Travel  # how gradients travel

    @property
    def graph_ops(self) -> GraphOps | None:
        """Where steps may be compiled, so that Python does not see each of them; None where it sees every update."""
        ...

    @property
    def waits_later(self) -> bool:
        """True if a message may be started in one update and waited for in a later one."""
        ...

    @property
    def label(self) -> str:
        """What errors and meetings call the optimizer or tape, the same on all ranks."""
        ...

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False) -> Work:
        """Start to reduce `tensors` under the bucket's name, and return at once.

        Dense tensors of one type and device, which may be overwritten; or one that `waits_here`. All ranks start the
        same names with the same shapes. `exact`: this time without the codec, under names that say so.
        """
        ...

    def full_names(self, bucket: Bucket, exact: bool = False) -> list[str]:
        """What Horovod calls the operations that `start` makes, one per member."""
        ...

    def waits_here(self, tensors: Sequence[Any]) -> bool:
        """Whether results of these wait in Python: sparse gradients are gathered, which the library keeps no place for.

        Tensors or, from a saved state, what `plain` makes of them.
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
        """Start to average weights over all ranks; what is returned waits, and gives tensors of their types or wider.

        `values`: what is averaged in place of the weights, which may be written into without. With `work` each rank's
        count as much as its work; without any on all ranks there are none. `encoded`: through the codec. `kind`: a word
        in the names, so that means of several kinds may travel at the same time. In a graph it waits at once.
        """
        ...

    def moments(self, weights: Mapping[int, Any]) -> Mapping[str, Mapping[int, Any]]:
        """Return the optimizer's state of each weight, in its shape, by kind, such as running averages of gradients.

        Raises UsageError where there are none.
        """
        ...

    def trial(self) -> Trial:
        """Steps of the optimizer with this rank's own gradients. Raises UsageError where they cannot be made."""
        ...

    def among(self, process_set: Any) -> Wire:
        """A wire of the same gradients over the ranks of another process set, which averages them as they are."""
        ...

    def shared(self, weights: Mapping[int, Any], members: set[Key]) -> Mapping[int, Any]:
        """Those of `weights` that ranks share, where gradients of `members` travel."""
        ...

    def update_set(self, weights: Mapping[int, Any]) -> frozenset[int] | None:
        """Key of the weights that an update changes; None where every update changes all of them."""
        ...

    # Tensors and weights.

    def like(self, tensor: Any) -> tuple[tuple[int, ...], str]:
        """Shape, and type as NumPy calls it."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor of zeros in CPU memory."""
        ...

    def zeros_like(self, tensor: Any) -> Any:
        """Zeros of a tensor's shape, type and layout."""
        ...

    def travelling(self, tensor: Any) -> Array:
        """A result as it travels: compressed."""
        ...

    def plain(self, result: Any) -> Any:
        """A result as states hold it: an array, or a dict of arrays (paceline.exchange.in_flight_state)."""
        ...

    def from_plain(self, value: Any) -> Any:
        """The result that `plain` was given, for those that wait here."""
        ...

    def value(self, weight: Any) -> Any:
        """The tensor in a weight, through which no gradient flows."""
        ...

    def trains(self, weight: Any) -> bool:
        """Whether a weight is trained now, and not frozen."""
        ...

    def copy(self, tensor: Any) -> Any:
        """A tensor of the same values that stays as it is."""
        ...

    def where(self, predicate: Any, one: Any, other: Any) -> Any:
        """One of two tensors, element by element."""
        ...

    def assign(self, weight: Any, value: Any) -> None:
        """Give a weight other values; a tensor, or an array of a saved state."""
        ...

    def cell_of(self, weight: Any) -> Cell:
        """A cell of a weight's values now, of its type and on its device."""
        ...

    def rescheduled(self, rate: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """A context in which learning rates are what `rate` makes of them, where the optimizer does not ask itself."""
        ...
