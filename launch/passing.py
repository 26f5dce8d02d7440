"""A command whose output passes through while its last lines are kept, and whose signals and exit code pass on."""

from __future__ import annotations

import collections
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, BinaryIO

from paceline.errors import UserError
from paceline.launch import processes
from paceline.launch.failures.tracebacks import Tracker

KEPT_LINES = 30
LINE_LIMIT_S = 0.1  # for the end of a line that has begun, before it is shown without
GRACE_S = 5.0  # for a command to end after another rank has failed, before it is made to
# Schedulers announce the end of a job's time with these, and scripts write checkpoints then.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


@dataclass(frozen=True)
class Ended:
    """How a command ended. `asked`: because it was asked to. `lines`: what it said of an end that was not well.

    These are the last ones, or the user's frames of a traceback among them, whose `error` is known then.
    `consequence`: it says that another rank failed or ended.
    """

    code: int
    how: str
    asked: bool
    lines: list[str]
    error: str = ""
    consequence: bool = False


class _Tail:
    """The last lines of both streams, as they came."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._lock = threading.Lock()
        self._tracker = Tracker()

    def add(self, line: bytes, is_error: bool) -> None:
        """Take a line, of standard error or not."""
        # What a progress bar wrote over is of no interest.
        text = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
        with self._lock:
            self._lines.append(text[:500])
            if is_error:
                self._tracker.add(text)
        self._on_line(text)

    def ended(self, code: int, how: str, asked: bool) -> Ended:
        """Return how the command ended, whose lines these are."""
        if not code:
            return Ended(code, how, asked, [])
        with self._lock:
            lines, found = list(self._lines), self._tracker.own[-1:]
            if not (found and found[0].error[:500] in lines):  # else it went on after its traceback
                return Ended(code, how, asked, lines)
            return Ended(code, how, asked, found[0].excerpt(), found[0].reason(), self._tracker.is_consequence)


class Command:
    """A running command, in a session of its own: a signal to us reaches it once, and all of it can be ended."""

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], on_line: Callable[[str], None] = lambda line: None
    ) -> None:
        """Start it; `on_line` gets every line of both streams. Raises UserError if it cannot be started."""
        self._signals: collections.deque[int] = collections.deque()
        self._asked: int | None = None
        self._tail = _Tail(on_line)
        # What our caller ignores, as nohup does, stays ignored.
        heard = [number for number in PASSED_ON if signal.getsignal(number) not in (signal.SIG_IGN, None)]
        self._before: dict[signal.Signals, Any] = {number: signal.signal(number, self._note) for number in heard}
        try:
            self.process = subprocess.Popen(
                words,
                env=dict(environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=processes.dying_with_parent(signal.SIGKILL),  # no rank stays behind on its node
            )
        except OSError as error:
            self._restore()
            raise UserError(
                f"{shlex.join(words)} cannot be started: {error.strerror or error}.",
                "See whether this host has it; `python train.py` is the usual form.",
            ) from None
        streams = ((self.process.stdout, sys.stdout.buffer), (self.process.stderr, sys.stderr.buffer))
        self._pumps = [threading.Thread(target=self._pump, args=pair, daemon=True) for pair in streams]
        for pump in self._pumps:
            pump.start()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pump(self, source: BinaryIO, target: BinaryIO) -> None:
        is_error = source is self.process.stderr
        begun, held = b"", b""
        while True:
            # Python writes a line and its end apart, and launchers put what they get one behind the other: a line waits
            # for its end, but not for long, because a progress bar has none.
            chunk = None
            if not held or select.select([source], [], [], LINE_LIMIT_S)[0]:
                chunk = os.read(source.fileno(), 65536)
                *whole, begun = (begun + chunk).split(b"\n")
                for line in whole:
                    self._tail.add(line, is_error)
                held += chunk
            end = held.rfind(b"\n") + 1 if chunk else len(held)
            try:
                target.write(held[:end])
                target.flush()
            except (OSError, ValueError):  # nobody reads us any more: the command learns it from its next write
                source.close()
                return
            held = held[end:]
            if chunk == b"":
                break
        if begun:
            self._tail.add(begun, is_error)

    def wait(self, ending: Callable[[], bool]) -> Ended:
        """How it ended. When `ending` turns true, it is asked to end, then made to."""
        ended_by_us = False
        try:
            while self.process.poll() is None:
                while self._signals:
                    number = self._signals.popleft()
                    self._asked = number
                    self.process.send_signal(number)
                if ending():
                    ended_by_us = True
                    break
                try:
                    self.process.wait(processes.SLICE_S)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            processes.end(self.process, GRACE_S)
            for pump in self._pumps:
                pump.join(GRACE_S)
            self._restore()
        code = self.process.returncode
        asked = ended_by_us or self._asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        return self._tail.ended(code if code >= 0 else 128 - code, _how(code), asked)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
