"""A command whose output passes through while its last lines are kept, and whose signals and exit code pass on."""

from __future__ import annotations

import collections
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from paceline.errors import UserError
from paceline.failure.reports import Failed, taken
from paceline.launch import processes
from paceline.launch.failures.tail import failure_in

KEPT_LINES = 30
LINE_LIMIT_S = 0.1  # for the end of a line that has begun, before it is shown without
GRACE_S = 5.0  # for a command to end after another rank has failed, before it is made to
# Schedulers announce the end of a job's time with these, and scripts write checkpoints then.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


class Ended(msgspec.Struct, tag="ended"):
    """How a command ended. `asked`: because it was asked to. `failed`: its report. `tail`: its last lines."""

    code: int
    asked: bool
    failed: Failed | None
    tail: list[str]


class _Tail:
    """The last lines of both streams, as they came, and the last report of a failure."""

    def __init__(self) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._failed: Failed | None = None

    def shown(self, piece: bytes) -> bytes:
        """Take a piece of output; return what of it is to be shown."""
        text, report = taken(piece.decode(errors="replace"))
        if report is None:
            if not text.endswith("\r"):  # a progress bar writes over it
                self._lines.append(text.rstrip("\r\n")[:500])
            return piece
        if isinstance(report, Failed):
            self._failed = report
        return text.encode()

    def ended(self, code: int, asked: bool) -> Ended:
        """Return how the command ended, whose lines these are."""
        lines = list(self._lines.copy()) if code else []
        return Ended(code, asked, (self._failed or failure_in(lines)) if code else None, lines)


class Command:
    """A running command, in a session of its own: a signal to us reaches it once, and all of it can be ended."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start it. Raises UserError if it cannot be started."""
        self._signals: collections.deque[int] = collections.deque()
        self._asked: int | None = None
        self._tail = _Tail()
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
        def show(piece: bytes) -> None:
            target.write(self._tail.shown(piece))
            target.flush()

        try:
            # Python writes a line and its end apart, and launchers put what they get one behind the other: a line waits
            # for its end, but not for long, because a progress bar has none.
            processes.read(source, show, LINE_LIMIT_S)
        except (OSError, ValueError):  # nobody reads us any more: the command learns it from its next write
            source.close()

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
