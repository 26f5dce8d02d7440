"""Comparison of the sums of a result with the sums of its contributions, within rounding errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.history.sums import Sums

# Unit roundoff and smallest positive number of types on the wire.
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
# Roundings of an element that do not add a contribution: scaling before and after the sum, and of the sums themselves.
_SCALINGS = 4


@dataclass(frozen=True)
class Total:
    """Added sums of several tensors."""

    plain: float = 0.0
    placed: float = 0.0
    size: float = 0.0

    def plus(self, one: Sums | Total, times: float = 1.0) -> Total:
        """Return this total and `times` another one. Its size only grows: it bounds errors."""
        assert one.plain is not None and one.placed is not None and one.size is not None
        return Total(
            self.plain + times * one.plain, self.placed + times * one.placed, self.size + abs(times) * one.size
        )


def total(many: Iterable[Sums | Total]) -> Total:
    """Return the added sums of `many` tensors, all of which are finite."""
    found = Total()
    for one in many:
        found = found.plus(one)
    return found


def bound(size: float, count: int, ranks: int, dtype: str, rounding: float) -> float:
    """Return the largest error of a sum over `count` elements, of magnitudes `size` in all, over `ranks` ranks."""
    kind = dtype if dtype in ROUNDING else "float64"
    unit, least = max(ROUNDING[kind], rounding), _LEAST["float16"] if rounding else _LEAST[kind]
    operations = ranks + _SCALINGS
    own = count * ROUNDING["float64"]  # of the checksums themselves
    return operations * (unit + own) * size + operations * count * least


def equal(one: Sums | Total, other: Sums | Total, limit: float) -> bool:
    """Return True if two tensors have equal sums up to `limit`."""
    assert one.plain is not None and one.placed is not None and other.plain is not None and other.placed is not None
    return abs(one.plain - other.plain) <= limit and abs(one.placed - other.placed) <= limit


def sensitive(contributions: Sequence[Sums], limit: float) -> bool:
    """Return True if the sums would differ by more than `limit` without any one contribution that is not zero."""
    return all(not one.size or max(abs(one.plain or 0.0), abs(one.placed or 0.0)) > 2 * limit for one in contributions)
