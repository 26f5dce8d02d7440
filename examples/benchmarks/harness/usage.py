"""Processor time and sleeps of this process's threads, and which of them is Horovod's background thread."""

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
    """Seconds of processor time, and voluntary context switches: how often a thread went to sleep and was woken."""

    cpu_s: float
    wakeups: int

    def since(self, before: Used) -> Used:
        """What was used after `before`."""
        return Used(self.cpu_s - before.cpu_s, self.wakeups - before.wakeups)


def process() -> Used:
    """All threads of this process, those that have ended among them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)


def thread(task: int) -> Used:
    """One thread, by the kernel's number of it."""
    folder = _TASKS / str(task)
    status = (folder / "status").read_text().splitlines()
    switches = next(int(line.split()[1]) for line in status if line.startswith(_SWITCHES))
    # The first of schedstat's numbers: nanoseconds on a processor. stat has but hundredths of a second.
    return Used(int((folder / "schedstat").read_text().split()[0]) / 1e9, switches)


def tasks() -> set[int]:
    """The kernel's numbers of all threads there are."""
    return {int(path.name) for path in _TASKS.iterdir()}


def background(before: Collection[int]) -> int:
    """The kernel's number of Horovod's background thread, where `before` were there when hvd.init() was called.

    That is the first one that init() starts, and begins the others of Horovod and Gloo itself; Python's own have Python
    objects. Raises RuntimeError where there is none.
    """
    own = {one.native_id for one in threading.enumerate()}
    started = [(begun, task) for task in tasks() - set(before) - own if (begun := _start(task)) is not None]
    if not started:
        raise RuntimeError("Horovod has started no background thread")
    return min(started)[1]


def _start(task: int) -> int | None:
    """When a thread began, in the kernel's ticks; None if it has ended."""
    try:
        text = (_TASKS / str(task) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The thread's name is in parentheses and may itself contain some; the time is the 22nd field, the first behind it
    # the third.
    return int(text.rpartition(")")[2].split()[19])
