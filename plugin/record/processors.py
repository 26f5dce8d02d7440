"""Number of processors that the process of this rank and its whole machine use."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from paceline.record.trace import Processors

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Used(NamedTuple):
    """Processor seconds of this process and of the whole machine, at a time in seconds."""

    processor_s: float
    machine_s: float
    at_s: float

    def since(self, before: Used) -> Processors | None:
        """Return the number of processors used since `before`; None if no time has passed."""
        passed_s = self.at_s - before.at_s
        if passed_s <= 0:
            return None
        own = (self.processor_s - before.processor_s) / passed_s
        busy = max(own, (self.machine_s - before.machine_s) / passed_s)
        return Processors(_machine(), os.cpu_count() or 1, own, busy)


def used() -> Used:
    """Return the processor time of all threads of this process, and of all processors, until now.

    The kernel sends and receives messages in time that belongs to no process.
    """
    times = psutil.cpu_times()
    machine_s = times.user + times.system + getattr(times, "nice", 0.0)
    machine_s += getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    return Used(time.process_time(), machine_s, time.monotonic())


def _machine() -> str:
    """Return an id common to all emulated hosts and containers of a machine; its name if the system has no such id."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return os.uname().nodename
