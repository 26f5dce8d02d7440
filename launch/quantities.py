"""Sizes of messages as users write them."""

from __future__ import annotations

import re

from paceline.errors import UserError

ELEMENT_BYTES = 4  # float32
MOST_BYTES = 1 << 31
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "kb": 10**3, "mb": 10**6}
_REMEDY = f'Write bytes, or a number and one of KiB, MiB, KB, MB: "4,4KiB,64MiB"; multiples of {ELEMENT_BYTES}.'


def size_bytes(text: str) -> int:
    """Bytes of a text like "64KiB": whole float32s. Raises UserError that shows the text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    size = float(match[1]) * _UNITS.get(match[2].lower(), 0) if match else 0.0
    if not 0 < size <= MOST_BYTES or size % ELEMENT_BYTES:
        raise UserError(f"The size {text!r} cannot be used.", _REMEDY)
    return int(size)


def sizes_bytes(text: str) -> tuple[int, ...]:
    """Several, without repetitions, with commas between them."""
    return tuple(dict.fromkeys(size_bytes(part) for part in text.split(",")))


def size_name(size: int) -> str:
    """A size as `size_bytes` reads it, in the largest unit that fits: 64KiB, 100."""
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)
