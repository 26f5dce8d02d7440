"""Encoding of the gradients of one optimizer or tape, and this rank's error-feedback residuals."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict

from paceline.codecs.choice import AGREED, Choice
from paceline.codecs.naming import disown, own
from paceline.errors import UsageError
from paceline.log import log
from paceline.native.agreement import agree
from paceline.native.codecs import Residual, put_residual, residual
from paceline.native.world import world

# Key of a gradient's parameter (paceline.exchange.wire.Key).
Key = str | int
REMEDY = (
    "Give all ranks the same codec=, error_feedback= and collective=, or the same PACELINE_CODEC and "
    "PACELINE_COLLECTIVE."
)
_numbers = itertools.count(1)


class Residuals(TypedDict):
    """Residuals that this rank adds to its next gradients (error feedback), as saved in a state.

    See also paceline.exchange.in_flight_state.
    """

    rank: int  # owner, in the process set; other ranks ignore them
    values: dict[Any, Any]  # flat float32 arrays, by key of the parameter


class _Met(set[tuple[int, str]]):
    """Pairs of the Encoding's number and a label for which all ranks were found to have the same choice."""


class Encoding:
    """Codec and collective of the gradients of one optimizer or tape, with their residuals.

    The library keeps residuals under the names of operations as long as this object lives. A saved state has them by
    key of the parameter. A loaded residual waits here until the operation of its gradient is known.
    """

    def __init__(self, library: ctypes.CDLL, process_set: Any, choice: Choice) -> None:
        self.choice = choice
        self._library = library
        self._process_set = process_set
        self._number = next(_numbers)
        self._begun: set[str] = set()  # `first` of each `begin`
        self._members: dict[str, Key] = {}  # by full name
        self._loaded: dict[Key, Residual] = {}
        self._announced = False
        if choice.error_feedback:
            weakref.finalize(self, _end, library, process_set, self._members, self._number).atexit = False

    def choice_of(self, tensors: Sequence[Any]) -> Choice:
        """Return the choice for gradients, or variables, of the types of `tensors`; they form one operation."""
        other = self.choice.bfloat16
        return other if other is not None and {dtype_name(one) for one in tensors} == {"bfloat16"} else self.choice

    def begin(
        self, first: str, names: Callable[[], Sequence[str]], members: Sequence[Key], tensors: Sequence[Any]
    ) -> None:
        """Prepare the gradients of `members` before they are submitted.

        They are submitted under the full `names()`, which belong to `first`. `tensors` have the gradients' types.
        Raises UsageError for gradients that no codec accepts.
        """
        if first in self._begun and not self._loaded:
            return
        choice = self.choice_of(tensors)
        if choice.own_codec and choice.lossy:
            _check(first, choice, tensors)
        self._begun.add(first)
        if not choice.error_feedback:
            return
        process_set_id = self._process_set.process_set_id
        for name, member in zip(names(), members, strict=True):
            if name not in self._members:
                own(self._library, process_set_id, name, self._number)
            self._members[name] = member
            if member in self._loaded:
                put_residual(self._library, process_set_id, name, self._loaded.pop(member))

    def announce(self, label: str) -> None:
        """Report the choice once, on rank 0, if it differs from the variables."""
        if self.choice.own and not self._announced and self._process_set.rank() == 0:
            log(f"{self.choice} for {label}.")
        self._announced = True

    def meet(self, label: str) -> None:
        """Check, once in a world, that all ranks made the same choice for `label`, if it differs from the variables.

        For gradients whose exchange has no such check. Raises UserError within a minute if the choices differ.
        """
        met = world(self._library).of(_Met)
        if not self.choice.own or (self._number, label) in met:
            return
        met.add((self._number, label))
        agree(
            self._library,
            self._process_set.process_set_id,
            f"paceline.encoding.{label}",
            self.choice.numbers,
            f"{', '.join(AGREED)} ({self.choice} here)",
            REMEDY,
        )
        self.announce(label)

    def state(self) -> Residuals | None:
        """Return this rank's residuals for saving; None if there are none. Does not communicate."""
        values: dict[Key, Residual] = dict(self._loaded)
        for name, member in self._members.items():
            found = residual(self._library, self._process_set.process_set_id, name)
            if found is not None and found.size:
                values[member] = found
        return {"rank": int(self._process_set.rank()), "values": values} if values else None

    def drop(self, members: Collection[Key]) -> None:
        """Discard the residuals of `members`, whose next gradients no longer continue the earlier ones."""
        for name, member in self._members.items():
            if member in members:
                put_residual(self._library, self._process_set.process_set_id, name, None)
        for member in members:
            self._loaded.pop(member, None)

    def load(self, state: Residuals | None) -> None:
        """Restore the residuals that `state` returned; None, or another rank's state: start without residuals.

        Each rank restores only its own residuals. If all load rank 0's checkpoint, the others start without residuals,
        at the cost of one step's rounding error.
        """
        if not self.choice.error_feedback:
            return
        mine = state is not None and state["rank"] == int(self._process_set.rank())
        values = dict(state["values"]) if state is not None and mine else {}
        # A graph calls `begin` only once, while it is traced: its residuals go to the library now.
        for name, member in self._members.items():
            put_residual(self._library, self._process_set.process_set_id, name, values.get(member))
        begun = set(self._members.values())
        self._loaded = {member: one for member, one in values.items() if member not in begun}


def _end(library: ctypes.CDLL, process_set: Any, names: dict[str, Key], number: int) -> None:
    if process_set.process_set_id is not None:  # else it was removed, with all its residuals
        disown(library, process_set.process_set_id, names, number)


def dtype_name(tensor: Any) -> str:
    """Return NumPy's name of the dtype of a tensor or variable of any framework."""
    return str(getattr(tensor.dtype, "name", tensor.dtype)).removeprefix("torch.")


def _check(name: str, choice: Choice, tensors: Sequence[Any]) -> None:
    for one in tensors:
        if "float" not in dtype_name(one):
            raise UsageError(
                f"The gradient {name!r} is of {dtype_name(one)}, which codec={choice.codec!r} does not take: rounding "
                "changes whole numbers.",
                'Use codec="none" for it, or parameters of floating-point numbers.',
            )
