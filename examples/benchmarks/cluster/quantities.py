"""Numbers with units, as users write rates and latencies."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paceline.config import nearest
from paceline.errors import UserError


def parse_quantity(what: str, text: str, units: Mapping[str, float], remedy: str) -> float:
    """The number in `text` times its unit. Raises UserError that shows the text; `what` is the quantity's name."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z/]*)\s*", text) if isinstance(text, str) else None
    if match is None:
        raise UserError(f"The {what} {text!r} cannot be used: it is not a number with a unit.", remedy)
    number, unit = match[1], match[2].lower()
    if unit not in units:
        problem = f"The {what} {text!r} cannot be used: " + (f"unknown unit {unit!r}." if unit else "it has no unit.")
        raise UserError(problem, f"{nearest(unit, list(units))} {remedy}" if unit else remedy)
    return float(number) * units[unit]
