"""Processor time and sleeps of this process's threads, and identification of Horovod's background thread."""

from __future__ import annotations

import resource
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")
_SWITCHES = "voluntary_ctxt_switches:"


@dataclass(frozen=True)
class Used:
    """Seconds of processor time, and voluntary context switches: how often a thread slept and was woken."""

    cpu_s: float
    wakeups: int

    def since(self, before: Used) -> Used:
        """Return the usage after `before`."""
        return Used(self.cpu_s - before.cpu_s, self.wakeups - before.wakeups)


def process() -> Used:
    """Usage of all threads of this process, including ended ones."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)


def thread(task: int) -> Used:
    """Usage of one thread, by its kernel id."""
    folder = _TASKS / str(task)
    status = (folder / "status").read_text().splitlines()
    switches = next(int(line.split()[1]) for line in status if line.startswith(_SWITCHES))
    # The first number of schedstat: nanoseconds on a processor. stat only has hundredths of a second.
    return Used(int((folder / "schedstat").read_text().split()[0]) / 1e9, switches)


def tasks() -> set[int]:
    """Kernel ids of all current threads."""
    return {int(path.name) for path in _TASKS.iterdir()}


def background(before: Collection[int]) -> int:
    """Kernel id of Horovod's background thread; `before`: ids when hvd.init() was called.

    It is the first thread that init() starts; it starts the other threads of Horovod and Gloo itself. Python's threads
    are known by their Python objects. Raises RuntimeError if there is none.
    """
    own = {one.native_id for one in threading.enumerate()}
    started = [(begun, task) for task in tasks() - set(before) - own if (begun := _start(task)) is not None]
    if not started:
        raise RuntimeError("Horovod has started no background thread")
    return min(started)[1]


def _start(task: int) -> int | None:
    """Start time of a thread in the kernel's ticks; None if it has ended."""
    try:
        text = (_TASKS / str(task) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The thread's name is in parentheses and may contain parentheses. The time is field 22; the first after the name is
    # field 3.
    return int(text.rpartition(")")[2].split()[19])
