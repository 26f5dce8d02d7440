"""How the gradients of one optimizer or tape travel, and what their encoding has lost on this rank."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict

from paceline.codecs.choice import AGREED, Choice
from paceline.codecs.naming import disown, own
from paceline.errors import UsageError
from paceline.native.agreement import agree
from paceline.native.codecs import Residual, put_residual, residual
from paceline.native.world import world
from paceline.telling import tell

# Whose a gradient is (paceline.exchange.wire.Key).
Key = str | int
REMEDY = (
    "Give all ranks the same codec=, error_feedback= and collective=, or the same PACELINE_CODEC and "
    "PACELINE_COLLECTIVE."
)
_numbers = itertools.count(1)


class Residuals(TypedDict):
    """What error feedback of one rank adds to the next gradients (paceline.exchange.in_flight_state)."""

    rank: int  # whose, in the process set; no other rank takes them
    values: dict[Any, Any]  # float32, flat, by whose the gradients are


class _Met(set[tuple[int, str]]):
    """Labels for which all ranks have chosen the same, by the number of the Travel."""


class Travel:
    """How the gradients of one optimizer or tape travel, with their residuals.

    Residuals stay in the library under the names of operations, as long as this object lives; a state has them by whose
    the gradients are. One that was loaded waits here until the operations of its gradients are known.
    """

    def __init__(self, library: ctypes.CDLL, process_set: Any, choice: Choice) -> None:
        self.choice = choice
        self._library = library
        self._process_set = process_set
        self._number = next(_numbers)
        self._begun: set[str] = set()  # first names
        self._members: dict[str, Key] = {}  # by full name
        self._loaded: dict[Key, Residual] = {}
        self._announced = False
        if choice.error_feedback:
            weakref.finalize(self, _end, library, process_set, self._members, self._number).atexit = False

    def choice_of(self, tensors: Sequence[Any]) -> Choice:
        """The choice for gradients like `tensors`, or for those of such variables, which travel as one operation."""
        other = self.choice.bfloat16
        return other if other is not None and {dtype_name(one) for one in tensors} == {"bfloat16"} else self.choice

    def begin(
        self, first: str, names: Callable[[], Sequence[str]], members: Sequence[Key], tensors: Sequence[Any]
    ) -> None:
        """Before gradients of `members` are handed in, all under the full `names()`, which belong to `first`.

        `tensors` have the gradients' types. Raises UsageError for gradients that no codec takes.
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
        """One line on one rank, once, if it is not what the variables say."""
        if self.choice.own and not self._announced and self._process_set.rank() == 0:
            tell(f"{self.choice} for {label}.")
        self._announced = True

    def meet(self, label: str) -> None:
        """Wait, once in a world, for all ranks to choose the same for `label`, if this rank's is not the variables'.

        Raises UserError within a minute if they do not. For gradients whose exchange does not ask.
        """
        met = world(self._library).of(_Met)
        if not self.choice.own or (self._number, label) in met:
            return
        met.add((self._number, label))
        agree(
            self._library,
            self._process_set.process_set_id,
            f"paceline.travel.{label}",
            self.choice.numbers,
            f"{', '.join(AGREED)} ({self.choice} here)",
            REMEDY,
        )
        self.announce(label)

    def state(self) -> Residuals | None:
        """This rank's residuals, to be saved; None if there are none. Asks no other rank."""
        values: dict[Key, Residual] = dict(self._loaded)
        for name, member in self._members.items():
            found = residual(self._library, self._process_set.process_set_id, name)
            if found is not None and found.size:
                values[member] = found
        return {"rank": int(self._process_set.rank()), "values": values} if values else None

    def drop(self, members: Collection[Key]) -> None:
        """Gradients of these are others from here on: what was lost of the old ones is none of theirs."""
        for name, member in self._members.items():
            if member in members:
                put_residual(self._library, self._process_set.process_set_id, name, None)
        for member in members:
            self._loaded.pop(member, None)

    def load(self, state: Residuals | None) -> None:
        """Go on with what `state` returned; None, or that of another rank: with nothing.

        A checkpoint of one rank that all load is as good: what is missing was rounded away once.
        """
        if not self.choice.error_feedback:
            return
        mine = state is not None and state["rank"] == int(self._process_set.rank())
        values = dict(state["values"]) if state is not None and mine else {}
        # Steps of a graph have begun once and for all: theirs go to the library at once.
        for name, member in self._members.items():
            put_residual(self._library, self._process_set.process_set_id, name, values.get(member))
        begun = set(self._members.values())
        self._loaded = {member: one for member, one in values.items() if member not in begun}


def _end(library: ctypes.CDLL, process_set: Any, names: dict[str, Key], number: int) -> None:
    if process_set.process_set_id is not None:  # else it was removed, and all of it with it
        disown(library, process_set.process_set_id, names, number)


def dtype_name(tensor: Any) -> str:
    """As NumPy calls it, of a tensor or variable of any framework."""
    return str(getattr(tensor.dtype, "name", tensor.dtype)).removeprefix("torch.")


def _check(name: str, choice: Choice, tensors: Sequence[Any]) -> None:
    for one in tensors:
        if "float" not in dtype_name(one):
            raise UsageError(
                f"The gradient {name!r} is of {dtype_name(one)}, which codec={choice.codec!r} does not take: rounding "
                "changes whole numbers.",
                'Use codec="none" for it, or parameters of floating-point numbers.',
            )
