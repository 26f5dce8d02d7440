"""Quantities in user notation: sizes, times, and numbers with other units."""

from __future__ import annotations

import re
from collections.abc import Mapping

from paceline.config import nearest
from paceline.errors import UserError

ELEMENT_BYTES = 4  # float32
MOST_BYTES = 1 << 31
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "kb": 10**3, "mb": 10**6}
_REMEDY = f'Write bytes, or a number and one of KiB, MiB, KB, MB: "4,4KiB,64MiB"; multiples of {ELEMENT_BYTES}.'
_UNITS_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_UNITS_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


def parse_quantity(what: str, text: str, units: Mapping[str, float], remedy: str) -> float:
    """Return the number in `text` times its unit. Raises UserError with the text; `what`: the quantity's name."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z/]*)\s*", text) if isinstance(text, str) else None
    if match is None:
        raise UserError(f"The {what} {text!r} cannot be used: it is not a number with a unit.", remedy)
    number, unit = match[1], match[2].lower()
    if unit not in units:
        problem = f"The {what} {text!r} cannot be used: " + (f"unknown unit {unit!r}." if unit else "it has no unit.")
        raise UserError(problem, f"{nearest(unit, list(units))} {remedy}" if unit else remedy)
    return float(number) * units[unit]


def size_bytes(text: str) -> int:
    """Parse the bytes of a message, such as "64KiB": whole float32s. Raises UserError with the text."""
    size = parse_quantity("size", text, _UNITS, _REMEDY)
    if not 0 < size <= MOST_BYTES or size % ELEMENT_BYTES:
        raise UserError(f"The size {text!r} cannot be used.", _REMEDY)
    return int(size)


def sizes_bytes(text: str) -> tuple[int, ...]:
    """Parse several sizes separated by commas, without repetitions."""
    return tuple(dict.fromkeys(size_bytes(part) for part in text.split(",")))


def size_name(size: int) -> str:
    """Format a size as `size_bytes` reads it, in the largest unit that fits: 64KiB, 100."""
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


def seconds(text: str) -> int:
    """Parse `90m`, `1h30m`, `2d`, `HH:MM:SS` or `D-HH:MM:SS` to seconds; raises ValueError with the violated rule."""
    parts = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text)
    if parts:
        days, hours, minutes, rest = (int(part or 0) for part in parts.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif re.fullmatch(r"(?:\d+[dhms])+", text):
        total = sum(int(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))
    else:
        raise ValueError("must be a time such as 90m, 1h30m, 2d or 01:30:00")
    if total < 60:
        raise ValueError("must be a minute or more: schedulers count in minutes")
    return total


def clock(total_s: int, days: bool = False) -> str:
    """Format seconds as HH:MM:SS, or, with `days`, as D-HH:MM:SS from one day on."""
    minutes, rest = divmod(total_s, 60)
    hours, minutes = divmod(minutes, 60)
    if days and hours >= 24:
        return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{rest:02}"
    return f"{hours:02}:{minutes:02}:{rest:02}"


def mebibytes(text: str) -> int:
    """Parse `64G`, `512M` or `1T` to MiB; raises ValueError with the violated rule."""
    parts = re.fullmatch(r"([1-9]\d*)([MGT])(?:i?B)?", text)
    if not parts:
        raise ValueError("must be a whole number with a unit, such as 64G or 512M")
    return int(parts[1]) * _UNITS_MIB[parts[2]]
