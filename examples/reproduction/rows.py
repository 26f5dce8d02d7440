"""A row of the page: a published value, the function that recomputes it, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from paceline.examples.reproduction.measured import Measured

Values = float | Sequence[float]
# A row that is off by more has a note.
EXPLAINED_ABOVE = 0.1
REPRODUCED, FITTED, CHANGED = "reproduced", "fitted", "changed"


class Mark(Enum):
    """Origin of a published value, which says how well it is known."""

    TEXT = "TEXT"
    FIG = "FIG"
    WEB = "WEB"
    REPO = "REPO"
    CALC = "CALC"
    MEM_H = "MEM-H"
    MEM_M = "MEM-M"
    OWN = "OWN"

    @property
    def hard(self) -> bool:
        """True if the value may be a criterion."""
        return self not in (Mark.MEM_M, Mark.OWN)


class Missed(Enum):
    """Kinds of rows that are not within their tolerance."""

    EXPLAINED = "missed, explained"
    OPEN = "missed, open"


@dataclass(frozen=True)
class Row:
    """A published quantity, one value or a curve.

    Attributes:
        quantity: name of the quantity, with the points of a curve.
        mark: how well the published value is known.
        place: place in the paper.
        published: published value or values; a function for our own measurements.
        recompute: function that returns as many values, from Paceline's models and the paper's inputs.
        within: allowed deviation of each value, relative.
        unit: unit of the values, "" for a ratio or a number.
        printed: half a unit of the last published digit, which is allowed in addition.
        missed: expected kind of miss; None if all values are within the tolerance.
        fitted: an input was chosen so that the values agree.
        note: reason of a deviation, or origin of inputs.
        measured: our own measurement of the quantity, if there is one.
    """

    quantity: str
    mark: Mark
    place: str
    published: Values | Callable[[], Values]
    recompute: Callable[[], Values]
    within: float = 0.01
    unit: str = ""
    printed: float = 0.0
    missed: Missed | None = None
    fitted: bool = False
    note: str = ""
    measured: Measured | None = None


@dataclass(frozen=True)
class Result:
    """A recomputed row."""

    row: Row
    published: tuple[float, ...]
    recomputed: tuple[float, ...]

    @property
    def off(self) -> float:
        """Relative deviation of the value that deviates most, with its sign."""
        return max((_off(found, of) for found, of in self._pairs), key=abs)

    @property
    def within(self) -> bool:
        """True if every value is within the row's tolerance."""
        row = self.row
        return all(abs(found - of) <= row.within * abs(of) + row.printed + 1e-12 for found, of in self._pairs)

    @property
    def verdict(self) -> str:
        """The verdict in words; CHANGED if the row does not do what it declares."""
        if self.within != (self.row.missed is None):
            return CHANGED
        if self.row.missed is not None:
            return self.row.missed.value
        return FITTED if self.row.fitted else REPRODUCED

    @property
    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.recomputed, self.published, strict=True))


@dataclass(frozen=True)
class Paper:
    """Rows of one paper, and the results that cannot be recomputed, each with its reason."""

    name: str
    citation: str
    known: str
    method: str
    rows: tuple[Row, ...]
    impossible: tuple[tuple[str, str], ...]


def result(row: Row) -> Result:
    """Recompute a row."""
    published = row.published() if callable(row.published) else row.published
    return Result(row, _values(published), _values(row.recompute()))


def _values(given: Values) -> tuple[float, ...]:
    return (float(given),) if isinstance(given, int | float) else tuple(map(float, given))


def _off(found: float, of: float) -> float:
    if found == of:
        return 0.0
    return found / of - 1 if of else float("inf")
