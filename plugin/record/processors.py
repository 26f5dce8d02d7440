"""How busy the processors of this rank's machine are."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")
# Of the fields of the first line: user, nice, system, irq, softirq and steal. Guests are part of user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)


def busy_s() -> float | None:
    """Processor seconds, of all processes, since the machine began; None where the system does not count them."""
    try:
        name, *ticks = _STAT.read_text().split("\n", 1)[0].split()
        counted = sum(int(ticks[field]) for field in _BUSY)
    except (OSError, ValueError, IndexError):
        return None
    return counted / os.sysconf("SC_CLK_TCK") if name == "cpu" else None


def cores() -> int:
    """Processors that `busy_s` is counted on."""
    return os.cpu_count() or 1
