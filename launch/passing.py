"""Run a command: pass its output through and keep its last lines, forward signals, and return its exit code."""

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
LINE_LIMIT_S = 0.1  # longest wait for the rest of a line before it is shown incomplete
GRACE_S = 5.0  # time for a command to end after another rank failed, before it is killed
# Schedulers announce the end of a job's time with these signals; scripts write checkpoints then.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


class Ended(msgspec.Struct, tag="ended"):
    """End of a command. `asked`: it ended on request. `failed`: its report. `tail`: its last lines."""

    code: int
    asked: bool
    failed: Failed | None
    tail: list[str]


class _Tail:
    """Last lines of both streams in order of arrival, and the last failure report."""

    def __init__(self) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        # Those of standard error alone: lines of the other stream may arrive within a traceback.
        self._errors: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._failed: Failed | None = None

    def shown(self, piece: bytes, of_errors: bool) -> bytes:
        """Process a piece of output, or of standard error; return the part to show."""
        text, report = taken(piece.decode(errors="replace"))
        if report is None:
            if not text.endswith("\r"):  # a progress bar overwrites it
                for kept in (self._lines, self._errors)[: 1 + of_errors]:
                    kept.append(text.rstrip("\r\n")[:500])
            return piece
        if isinstance(report, Failed):
            self._failed = report
        return text.encode()

    def ended(self, code: int, asked: bool) -> Ended:
        """Return the end of the command with its last lines."""
        lines = list(self._lines.copy()) if code else []
        failed = (self._failed or failure_in(list(self._errors.copy())) or failure_in(lines)) if code else None
        return Ended(code, asked, failed, lines)


class Command:
    """A running command in its own session: each signal reaches it once, and all its processes can be ended."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the command. Raises UserError if that fails."""
        self._signals: collections.deque[int] = collections.deque()
        self._asked: int | None = None
        self._tail = _Tail()
        # Signals that our caller ignores, as with nohup, stay ignored.
        heard = [number for number in PASSED_ON if signal.getsignal(number) not in (signal.SIG_IGN, None)]
        self._before: dict[signal.Signals, Any] = {number: signal.signal(number, self._note) for number in heard}
        try:
            self.process = subprocess.Popen(
                words,
                env=dict(environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=processes.dying_with_parent(signal.SIGKILL),  # no rank outlives this process on its node
            )
        except OSError as error:
            self._restore()
            raise UserError(
                f"{shlex.join(words)} cannot be started: {error.strerror or error}.",
                "See whether this host has it; `python train.py` is the usual form.",
            ) from None
        streams = (
            (self.process.stdout, sys.stdout.buffer, False),
            (self.process.stderr, sys.stderr.buffer, True),
        )
        self._pumps = [threading.Thread(target=self._pump, args=pair, daemon=True) for pair in streams]
        for pump in self._pumps:
            pump.start()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pump(self, source: BinaryIO, target: BinaryIO, of_errors: bool) -> None:
        def show(piece: bytes) -> None:
            target.write(self._tail.shown(piece, of_errors))
            target.flush()

        try:
            # Python writes a line and its end separately, and launchers concatenate pieces. Incomplete lines wait for
            # their end, but not for long: a progress bar has none.
            processes.read(source, show, LINE_LIMIT_S)
        except (OSError, ValueError):  # our reader is gone: the command notices at its next write
            source.close()

    def wait(self, ending: Callable[[], bool]) -> Ended:
        """Wait until the command ends. When `ending` returns True, ask it to end, then kill it."""
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
