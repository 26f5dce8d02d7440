"""The output of ranks under horovodrun: what is passed on as it comes, what is withheld, and what remains at the end.

Withheld are errors of the user's, which each rank has; horovodrun's own traceback, which says no more than that
something failed; and all that ranks write to standard error from a traceback on, until the run has ended or goes on.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from paceline.launch.failures import reason
from paceline.launch.failures.tracebacks import HEADER, Traceback, Tracker
from paceline.launch.failures.transcript import Transcript
from paceline.launch.failures.withheld import ALIVE_S, HOLD_S, Withheld

_MARKED = re.compile(r"\[(?:\d+,)?(\d+)\]<std(?:out|err)>:(.*)")
_USER_ERROR = re.compile(r"Paceline: Error in (.*)")
_REMEDY = re.compile(r"Paceline: (.*)")
_ENDED = re.compile(r"Process (\d+) exit with status code (-?\d+)\.")
_OTHERS_ENDED = re.compile(r"Terminating remaining workers after failure of Process \d+\.")
_HOROVODRUNS = "RuntimeError: Horovod detected that one or more processes exited with non-zero status"
_NO_SSH = "RuntimeError: could not connect to some hosts via ssh"
_HOROVODRUNS_TAIL = re.compile(r"Process name: \S+|Exit code: -?\d+|")


class Ranks:
    """Takes every line of horovodrun's output. `out` and `err` are called with what is to be shown, ends included.

    `hosts`: the host of each rank; {} where only horovodrun knows.
    """

    def __init__(
        self,
        out: Callable[[str], None],
        err: Callable[[str], None],
        hosts: Mapping[int, str] | None = None,
        hold_s: float = HOLD_S,
        alive_s: float = ALIVE_S,
    ) -> None:
        self._show = {"out": out, "err": err}
        self._lock = threading.RLock()
        self._found = reason.Found({str(rank): host for rank, host in (hosts or {}).items()})
        self._begun: dict[str, str] = {}  # rank: the first line of an error whose second is awaited
        self._trackers: dict[str, Tracker] = {}
        self._own: Traceback | None = None  # horovodrun's
        self._tail = False
        self._unreached = False
        self._transcript = Transcript()
        self._withheld = Withheld(self._went_on, self._lock, hold_s, alive_s)

    def out(self, piece: str) -> None:
        """Take a piece of standard output, up to the end of a line or a carriage return, with it."""
        with self._lock:
            self._transcript.add(piece)
            line = piece.rstrip("\r\n")
            ended = _ENDED.fullmatch(line)
            if ended:
                self._found.ended.setdefault(ended[1], int(ended[2]))
            elif not _OTHERS_ENDED.fullmatch(line):
                self._show["out"](piece)
                if marked := _MARKED.match(piece):
                    self._withheld.wrote(marked[1])

    def err(self, piece: str) -> None:
        """Take a piece of standard error."""
        with self._lock:
            marked = _MARKED.match(piece)
            self._transcript.add(piece)
            if marked is None:
                self._of_horovodrun(piece)
            elif not self._is_users_error(marked[1], line := marked[2].rstrip("\r")):
                self._of_rank(marked[1], line, piece)

    def _is_users_error(self, rank: str, line: str) -> bool:
        problem, remedy = _USER_ERROR.match(line), _REMEDY.match(line)
        if problem:
            self._begun[rank] = problem[1]
        elif remedy and rank in self._begun:
            self._found.user_errors.setdefault((self._begun.pop(rank), remedy[1]), []).append(rank)
        else:
            return False
        return True

    def _of_rank(self, rank: str, line: str, piece: str) -> None:
        tracker = self._trackers.setdefault(rank, Tracker())
        before = len(tracker.many)
        fails = tracker.add(line)
        if len(tracker.many) > before:
            self._found.tracebacks.pop(rank, None)  # the order is that of the ranks' last ones
            self._found.tracebacks[rank] = tracker
            self._found.lived_on.discard(rank)
        if fails or self._found.ended or self._withheld.has(rank):
            if not fails:
                self._withheld.wrote(rank)
            self._withheld.add(rank, piece)
        else:
            self._show["err"](piece)

    def _went_on(self, rank: str, piece: str) -> None:
        self._found.lived_on.add(rank)
        self._show["err"](piece)

    def _of_horovodrun(self, piece: str) -> None:
        line = piece.rstrip("\r\n")
        if self._own is None and line == HEADER:
            self._own = Traceback([piece])
        elif self._own is not None:
            self._own.add(line)
            self._own.lines[-1] = piece
            if self._own.error:
                shown, self._own = self._own, None
                self._tail = shown.error.startswith(_HOROVODRUNS)
                self._unreached = shown.error == _NO_SSH
                if not (self._tail or self._unreached):
                    self._show["err"]("".join(shown.lines))
        elif not (self._tail and _HOROVODRUNS_TAIL.fullmatch(line)):
            self._show["err"](piece)

    def ended(
        self,
        code: int,
        left: Mapping[int, int] | None = None,
        exits: Mapping[int, int] | None = None,
        interrupted: bool = False,
    ) -> reason.Report:
        """Return the report on a run that ended with `code` and whose output has come; withheld lines go to a file.

        `left`, `exits`: see paceline.launch.start.Start. `interrupted`: the user ended the run, and so the ranks.
        """
        self._found.left = {str(rank): steps for rank, steps in (left or {}).items()}
        self._found.said_to_exit({str(rank): status for rank, status in (exits or {}).items()})
        with self._lock:
            if self._own is not None:
                self._show["err"]("".join(self._own.lines))
            if self._unreached:
                return reason.Report([], [reason.UNREACHED])
            if not code:
                self._withheld.release()
                return reason.Report([], self._found.users())
            withheld = self._withheld.drop()
            report = self._found.report(code, [piece for _, piece in withheld], interrupted)
            return report.with_file(self._file(withheld)) if withheld or report.lines else report

    def _file(self, withheld: list[tuple[str, str]]) -> Path | None:
        path = self._transcript.write()
        if path is None:
            for _, piece in withheld:
                self._show["err"](piece)
        return path


def passed_on(around: Callable[[Callable[[str], None]], Callable[[str], None]], hosts: Mapping[int, str]) -> Ranks:
    """Shown are the lines where ours go; each stream's writer is `around` what writes there. `hosts`: see Ranks."""

    def writer(name: str) -> Callable[[str], None]:
        def write(text: str) -> None:
            stream = getattr(sys, name)
            try:
                stream.write(text)
                stream.flush()
            except BrokenPipeError:
                # Who read it has seen enough (`| head`): the training goes on, and what it says is still taken from it.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

        return around(write)

    return Ranks(writer("stdout"), writer("stderr"), hosts)
