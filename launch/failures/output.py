"""Output of ranks under horovodrun: reports are read, other output is shown at once or held until the run ends.

Held are horovodrun's own traceback, which only says that something failed, and all that a rank writes to standard error
after its failure.
"""

from __future__ import annotations

import collections
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.failure.reports import Came, Exits, Failed, Left, Report, taken
from paceline.launch.failures.tail import BEGINS, HEADER, failure_in
from paceline.launch.failures.verdict import Fate, Verdict, decide
from paceline.launch.horovodrun import MARKED

# A rank that has failed may take a while to end, may hang, or may continue.
HOLD_S = 60.0
KEPT_PIECES = 20_000  # of output, for the file
_TAIL_LINES = 10
# Horovod's log lines of levels error and fatal. It writes the head of a line in pieces: those of two threads may be
# mixed.
_LOGGED = re.compile(r"[\[\d :.-]*\d{4}-\d\d-\d\d \d[^\]]*: [EF] ")
# The header of its traceback may follow a rank's last output directly, if that has no end of line.
_OWN_BEGINS = re.compile(rf'{re.escape(HEADER)}$|  File ".+", line \d+, in ')
_ENDED = re.compile(r"Process (\d+) exit with status code (-?\d+)\.")
_OTHERS_ENDED = re.compile(r"Terminating remaining workers after failure of Process \d+\.")
_HOROVODRUNS = "RuntimeError: Horovod detected that one or more processes exited with non-zero status"
_NO_SSH = "RuntimeError: could not connect to some hosts via ssh"
_ASKED_TO_END = (143, -15)
_SSH_LOST = 255
_UNREACHED = (
    "horovodrun does not reach the hosts named above by ssh.",
    "`ssh HOST true` must work from here and ask for nothing; `paceline doctor -H HOST` looks at more.",
)
Write = Callable[[str], None]


class Output:
    """Processes every piece of horovodrun's output. A piece ends with an end of line or a carriage return.

    `show_out` and `show_err` get the output to show, `on_report` a rank and its report. `hosts`: the host of each rank;
    {} if only horovodrun knows.
    """

    def __init__(
        self,
        show_out: Write,
        show_err: Write,
        hosts: Mapping[int, str] | None = None,
        on_report: Callable[[int, Report], None] = lambda rank, report: None,
        hold_s: float = HOLD_S,
    ) -> None:
        self._show_out, self._show_err, self._on_report = show_out, show_err, on_report
        self._hosts, self._hold_s = dict(hosts or {}), hold_s
        self._fates: dict[int, Fate] = {}  # in the order of reports
        self._came: set[int] = set()
        self._held: list[tuple[int, str, str]] = []  # rank, line, piece
        self._holding: set[int] = set()
        self._own: list[str] = []  # horovodrun's traceback
        self._ending = False  # horovodrun ends all ranks
        self._muted = False
        self._timer: threading.Timer | None = None
        self._pieces: collections.deque[str] = collections.deque(maxlen=KEPT_PIECES)
        self._lock = threading.RLock()

    def out(self, piece: str) -> None:
        """Process a piece of standard output."""
        with self._lock:
            if self._muted:
                return
            if ended := _ENDED.fullmatch(piece.rstrip("\r\n")):
                self._ended(int(ended[1]), int(ended[2]))
            self._ending = self._ending or _OTHERS_ENDED.fullmatch(piece.rstrip("\r\n")) is not None
            if rest := self._without_report(piece):
                self._pieces.append(rest)
                if not (ended or (self._ending and MARKED.match(rest) is None)):
                    self._show_out(rest)

    def err(self, piece: str) -> None:
        """Process a piece of standard error."""
        with self._lock:
            if self._muted:
                return
            rest = self._without_report(piece)
            if not rest:
                return
            self._pieces.append(rest)
            marked = MARKED.match(rest)
            if marked:
                self._of_rank(int(marked["rank"]), rest[marked.end() :].rstrip("\r\n"), rest)
            elif self._own or _OWN_BEGINS.match(rest):
                self._own.append(rest)
            else:
                self._show_err(rest)

    def mute(self) -> None:
        """Stop showing output: the run is being ended as intended."""
        with self._lock:
            self._muted = True
            self._stop()

    def _without_report(self, piece: str) -> str:
        marked = MARKED.match(piece)
        rest, report = taken(piece[marked.end() :]) if marked else ("", None)
        if marked is None or report is None:
            return piece
        self._reported(int(marked["rank"]), report)
        return f"{marked[0]}{rest}\n" if rest else ""

    def _reported(self, rank: int, report: Report) -> None:
        if isinstance(report, Came):
            self._came.add(rank)
            self._release(rank)  # of a program that was restarted
        elif isinstance(report, Failed):
            before = self._fates.pop(rank, None)  # its last failure counts
            self._fates[rank] = Fate(rank, report, None if before is None or before.asked else before.status)
            self._hold(rank)
        elif isinstance(report, Exits):
            fate = self._fate(rank)
            fate.status, fate.asked = report.status, False
        elif isinstance(report, Left):
            self._fate(rank).steps = report.steps
        self._on_report(rank, report)

    def _fate(self, rank: int) -> Fate:
        return self._fates.setdefault(rank, Fate(rank))

    def _ended(self, rank: int, status: int) -> None:
        fate, asked = self._fate(rank), status in _ASKED_TO_END
        if not asked or (fate.failed is None and fate.status is None):  # otherwise it ended while being terminated
            fate.status, fate.asked = status if status >= 0 else 128 - status, asked

    def _of_rank(self, rank: int, line: str, piece: str) -> None:
        if rank not in self._holding:
            begins = BEGINS.search(line) if rank not in self._came else None
            if begins:
                self._fate(rank)
            if begins or _LOGGED.match(line) or self._ending:
                self._hold(rank)
        if rank in self._holding:
            self._held.append((rank, line, piece))
        else:
            self._show_err(piece)

    def _hold(self, rank: int) -> None:
        self._holding.add(rank)
        if self._timer is None:
            self._timer = threading.Timer(self._hold_s, self._go_on)
            self._timer.daemon = True
            self._timer.start()

    def _go_on(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread():
                for rank in list(self._holding):
                    self._release(rank)

    def _release(self, rank: int) -> None:
        """Show the held output of a rank that continues after its failure."""
        for _, _, piece in (one for one in self._held if one[0] == rank):
            self._show_err(piece)
        self._held = [one for one in self._held if one[0] != rank]
        self._holding.discard(rank)
        if rank in self._fates:
            self._fates[rank].lived_on = True
        if not self._holding:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended(self, code: int, interrupted: bool = False) -> Verdict:
        """Return the verdict on a run that ended with `code`, which may be 0. It names a file with all output.

        `interrupted`: the user ended the run, and so the ranks.
        """
        with self._lock:
            self._stop()
            if self._muted:
                return Verdict(code=0)
            if any(line.rstrip() == _NO_SSH for line in self._own):
                return Verdict([_UNREACHED], code=code)
            if self._own and not any(line.startswith(_HOROVODRUNS) for line in self._own):
                self._show_err("".join(self._own))
            verdict = Verdict(code=code)
            if code:
                verdict = self._verdict(code, interrupted)
            if not verdict.errors and not interrupted:
                self._show_held()
            elif verdict.errors and (self._held or verdict.lines):
                self._name_file(verdict)
            return verdict

    def _verdict(self, code: int, interrupted: bool) -> Verdict:
        for fate in self._fates.values():
            lines = [line for rank, line, _ in self._held if rank == fate.rank]
            fate.failed = fate.failed or failure_in(lines)
            fate.tail = lines[-_TAIL_LINES:]
            host = self._hosts.get(fate.rank, "")
            if fate.status == _SSH_LOST and host not in ("", "localhost", "127.0.0.1", socket.gethostname()):
                fate.remedy = (
                    f"ssh ends with {_SSH_LOST} where a rank is killed or the connection breaks: see `dmesg` on {host},"
                    " and whether that host still runs."
                )
        return decide(list(self._fates.values()), self._hosts, code, interrupted)

    def _name_file(self, verdict: Verdict) -> None:
        if (path := self.file()) is None:
            self._show_held()
            return
        problem, remedy = verdict.errors[0]
        verdict.errors[0] = (problem, f"{remedy} The output of all ranks: {path}")

    def file(self) -> Path | None:
        """Write the last KEPT_PIECES pieces into a new file in the folder for temporary files; None if that fails."""
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="paceline-run-", suffix=".log", delete=False, encoding="utf-8", errors="replace"
            ) as file:
                file.writelines(self._pieces)
        except OSError:
            return None
        return Path(file.name)

    def _show_held(self) -> None:
        for _, _, piece in self._held:
            self._show_err(piece)


def writer(name: str) -> Write:
    """Return a function that writes to the named standard stream; "" discards the output."""
    if not name:
        return lambda text: None

    def write(text: str) -> None:
        stream = getattr(sys, name)
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            # The reader has closed the pipe (`| head`): the training continues, and its output is still read.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    return write
