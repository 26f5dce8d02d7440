"""Number of processors that the process of this rank uses, and their machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from paceline.record.trace import Processors

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Used(NamedTuple):
    """Processor seconds of this process, at a time in seconds."""

    processor_s: float
    at_s: float

    def since(self, before: Used) -> Processors | None:
        """Return the number of processors used since `before`; None if no time has passed."""
        passed_s = self.at_s - before.at_s
        if passed_s <= 0:
            return None
        return Processors(_machine(), os.cpu_count() or 1, (self.processor_s - before.processor_s) / passed_s)


def used() -> Used:
    """Return the processor time of all threads of this process until now."""
    return Used(time.process_time(), time.monotonic())


def _machine() -> str:
    """Return an id common to all emulated hosts and containers of a machine; its name if the system has no such id."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return os.uname().nodename
