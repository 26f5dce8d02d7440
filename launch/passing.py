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
from paceline.failure.reports import MARK, Failed, taken
from paceline.launch import processes
from paceline.launch.failures.tail import failure_in

KEPT_LINES = 30
_MARK = MARK.encode()
LINE_LIMIT_S = 0.1  # for the end of a line that has begun, before it is shown without
GRACE_S = 5.0  # for a command to end after another rank has failed, before it is made to
# Schedulers announce the end of a job's time with these, and scripts write checkpoints then.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


@dataclass(frozen=True)
class Ended:
    """How a command ended. `asked`: because it was asked to. `failed`: its report. `tail`: its last lines."""

    code: int
    asked: bool
    failed: Failed | None
    tail: list[str]


class _Tail:
    """The last lines of both streams, as they came, and the last report of a failure."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._lock = threading.Lock()
        self._failed: Failed | None = None

    def add(self, line: bytes) -> bytes:
        """Take a line; return what of it is to be shown."""
        before, report = taken(line.decode(errors="replace"))
        if report is not None:
            self._failed = report if isinstance(report, Failed) else self._failed
            return line[: line.index(_MARK)]
        # What a progress bar wrote over is of no interest.
        text = before.rstrip("\r\n").rpartition("\r")[2]
        with self._lock:
            self._lines.append(text[:500])
        self._on_line(text)
        return line

    def ended(self, code: int, asked: bool) -> Ended:
        """Return how the command ended, whose lines these are."""
        with self._lock:
            lines = list(self._lines)
        return Ended(code, asked, self._failed or failure_in(lines), lines) if code else Ended(code, asked, None, [])


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
        line, shown = b"", 0  # one without its end, and how many bytes of it are shown
        chunk: bytes | None = None
        while chunk != b"":
            # Python writes a line and its end apart, and launchers put what they get one behind the other: a line waits
            # for its end, but not for long, because a progress bar has none. A report has one.
            in_time = shown == len(line) or line.startswith(_MARK)
            if in_time or select.select([source], [], [], LINE_LIMIT_S)[0]:
                chunk = os.read(source.fileno(), 65536)
                *whole, line = (line + chunk).split(b"\n")
                out = b""
                for one in [each + b"\n" for each in whole] + [line] * (not chunk and line != b""):
                    out += self._tail.add(one)[shown:]
                    shown = 0
            else:
                out, shown = line[shown:], len(line)
            try:
                target.write(out)
                target.flush()
            except (OSError, ValueError):  # nobody reads us any more: the command learns it from its next write
                source.close()
                return

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
        return self._tail.ended(code if code >= 0 else 128 - code, asked)
