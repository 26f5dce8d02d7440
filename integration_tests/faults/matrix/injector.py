"""The fault of a case, in the process of its victim: waits for its moment, leaves a mark, and lets it happen.

The mark is a file with the time (CLOCK_MONOTONIC, the same for all processes of a machine) and the state in which the
fault found the job. A case without its mark has failed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.sentences import Action, Moment

WAIT_LIMIT_S = 20.0
# The others have called the library; this later they wait in it.
SETTLED_S = 0.05
MARK = "happened.json"
# A request for a fault outside the ranks, which leaves the mark.
ASKED = "asked.json"
# Bytes moved by this process after which a large message has begun.
BEGUN_BYTES = 400_000


class Broken(Exception):
    """Exception that the script of the victim raises."""


def moved_bytes() -> int:
    """Bytes that this process has read and written so far, through sockets, too."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]) + int(lines["wchar"])


class Injector:
    """Fault of one rank. On ranks that are not the victim only `reached` and the waits do anything."""

    def __init__(self, case: Case, rank: int, folder: str) -> None:
        self.case, self.rank, self._folder = case, rank, Path(folder)
        self.victim = rank == case.fault.victim
        self.done = False
        self._moved = 0
        self._full: Path | None = None

    # --- where ranks are ------------------------------------------------------------------------------------------

    def reached(self, place: str) -> None:
        """Show the other ranks that this one has come to `place`."""
        (self._folder / f"{place}.{self.rank}").touch()

    def wait_for(self, place: str, rank: int) -> None:
        """Wait until that rank has come to `place`."""
        self._until((self._folder / f"{place}.{rank}").exists, f"rank {rank} at {place}")

    def wait_for_others(self, place: str) -> None:
        """Wait until the others have come to `place`; one of them, if a rank that is behind may wait for this one."""
        others = [one for one in range(self.case.size) if one != self.rank]
        enough = any if self.case.exchange == "partial" else all
        self._until(lambda: enough((self._folder / f"{place}.{one}").exists() for one in others), f"ranks at {place}")

    def wait_for_mark(self) -> None:
        """Wait until the fault has happened."""
        self._until((self._folder / MARK).exists, "the fault")

    @staticmethod
    def _until(done: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + WAIT_LIMIT_S
        while not done():
            if time.monotonic() > end_s:
                raise TimeoutError(f"waited {WAIT_LIMIT_S:g} s for {what}")
            time.sleep(0.0005)

    # --- messages -------------------------------------------------------------------------------------------------

    def count_from_here(self) -> None:
        """Count the bytes of messages from here on."""
        self._moved = moved_bytes()

    def wait_for_message(self) -> int:
        """Wait until a large message has begun; return the bytes moved of it."""
        self._until(lambda: moved_bytes() - self._moved > BEGUN_BYTES, "a message")
        return moved_bytes() - self._moved

    # --- the fault ------------------------------------------------------------------------------------------------

    def is_at(self, moment: Moment, step: int | None = None) -> bool:
        """True on every rank if the fault is due here; on the victim once."""
        fault = self.case.fault
        return not self.done and fault.moment is moment and step in (None, fault.step)

    def act(self, **found: object) -> None:
        """Let the fault happen to this rank. `found`: facts for the mark."""
        self.done = True
        action = self.case.fault.action
        if action in (Action.CUT, Action.SLOW):
            self._write(ASKED, found)
            self.wait_for_mark()
            return
        self._write(MARK, {"time_s": time.monotonic(), **found})
        if action is Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif action in (Action.STOP, Action.PAUSE):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif action is Action.INTERRUPT:
            os.kill(os.getpid(), signal.SIGINT)
        elif action is Action.EXCEPTION:
            raise Broken(f"the script of rank {self.rank} is broken")
        elif action is Action.MEMORY:
            _use_up_memory()
        elif action is Action.DISK:
            _fill(self._folder / "disk")

    def act_in_thread(self, ready: Callable[[], dict[str, object]]) -> None:
        """Let the fault happen from another thread once `ready` returns, while this one is inside the library."""

        def run() -> None:
            try:
                found = ready()
            except TimeoutError:
                return  # there is no mark: the case fails
            self.act(**found)

        self.done = True
        threading.Thread(target=run, daemon=True).start()

    def _write(self, name: str, found: dict[str, object]) -> None:
        new = self._folder / f"{name}.new"
        new.write_text(json.dumps(found))
        new.rename(self._folder / name)


class Undisturbed(Injector):
    """Nothing happens to any rank."""

    def __init__(self, case: Case, rank: int) -> None:
        super().__init__(case, rank, os.devnull)
        self.victim, self.done = False, True


def _use_up_memory() -> None:
    """Let an allocation fail as it does where the memory is used up: with MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _fill(folder: Path) -> None:
    """Write to the file system of `folder` until it has no room."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
