"""Times and sizes as users write them, and as the schedulers read them."""

from __future__ import annotations

import re

_UNITS_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_UNITS_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}


def seconds(text: str) -> int:
    """`90m`, `1h30m`, `2d`, `HH:MM:SS` or `D-HH:MM:SS` in seconds; raises ValueError with the rule that it breaks."""
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
    """Seconds as HH:MM:SS, or as D-HH:MM:SS if `days` are told apart and there are any."""
    minutes, rest = divmod(total_s, 60)
    hours, minutes = divmod(minutes, 60)
    if days and hours >= 24:
        return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{rest:02}"
    return f"{hours:02}:{minutes:02}:{rest:02}"


def mebibytes(text: str) -> int:
    """`64G`, `512M` or `1T` in MiB; raises ValueError with the rule that it breaks."""
    parts = re.fullmatch(r"([1-9]\d*)([MGT])(?:i?B)?", text)
    if not parts:
        raise ValueError("must be a whole number with a unit, such as 64G or 512M")
    return int(parts[1]) * _UNITS_MIB[parts[2]]
