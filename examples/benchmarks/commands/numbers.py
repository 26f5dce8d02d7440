"""Several whole numbers in one option."""

from __future__ import annotations

import re

from paceline.errors import UserError

_REMEDY = 'Write numbers, "2,4,8", or a range, "2..8".'


def numbers(option: str, text: str) -> tuple[int, ...]:
    """The numbers of "2,4,8" or "2..8", each once, in ascending order. Raises UserError that shows both."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:\.\.(\d{1,4}))?\s*", part)
        if match is None:
            raise UserError(f"{option} {text} cannot be used.", _REMEDY)
        first = int(match[1])
        found += range(first, int(match[2] or first) + 1)
    if not found:
        raise UserError(f"{option} {text} cannot be used: the range is empty.", _REMEDY)
    return tuple(sorted(set(found)))
