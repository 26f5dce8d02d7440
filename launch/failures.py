"""What the output of ranks says of their failure: passed on as it comes, and said in two lines at the end.

Withheld are what would be said several times: errors of the user's, which each rank has, and horovodrun's own
traceback, which says no more than that something failed.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.errors import UserError

_MARKED = re.compile(r"\[(?:\d+,)?(\d+)\]<std(?:out|err)>:(.*)")
_USER_ERROR = re.compile(r"Paceline: Error in (.*)")
_REMEDY = re.compile(r"Paceline: (.*)")
_TRACEBACK = "Traceback (most recent call last):"
_LOGGED = re.compile(r"\[\d{4}-\d\d-\d\d .*\] ")  # by Horovod
_FRAME = re.compile(r'\s+File "(.+)", line (\d+), in ')
_ENDED = re.compile(r"Process (\d+) exit with status code (-?\d+)\.")
_OTHERS_ENDED = re.compile(r"Terminating remaining workers after failure of Process \d+\.")
_HOROVODRUNS = "RuntimeError: Horovod detected that one or more processes exited with non-zero status"
_NO_SSH = "RuntimeError: could not connect to some hosts via ssh"
_HOROVODRUNS_TAIL = re.compile(r"Process name: \S+|Exit code: -?\d+|")
_ASKED_TO_END = (128 + signal.SIGTERM, -signal.SIGTERM)
# What ranks raise because another one failed.
CONSEQUENCES = ("HorovodInternalError", "has been shut down", "StageFailed", "StageLost", "HorovodEnded")


@dataclass
class _Traceback:
    """One that is under way, or ended with `error`. `place`: its innermost line outside of installed packages."""

    lines: list[str] = field(default_factory=list)
    place: str = ""
    error: str = ""

    def add(self, line: str) -> None:
        if _LOGGED.match(line):  # by another thread, in between
            return
        self.lines.append(line)
        found = _FRAME.match(line)
        if found and "site-packages" not in found[1] and not found[1].startswith("<"):
            self.place = f"{found[1]}, line {found[2]}"
        if line[:1].strip() and line != _TRACEBACK:
            self.error = line


class Ranks:
    """Takes every line of horovodrun's output. `out` and `err` are called with what is to be shown, ends included."""

    def __init__(self, out: Callable[[str], None], err: Callable[[str], None]) -> None:
        self._show = {"out": out, "err": err}
        self._lock = threading.Lock()
        self._user_errors: dict[tuple[str, str], list[str]] = {}  # place and problem, remedy: ranks
        self._begun: dict[str, str] = {}  # rank: the first line of an error whose second is awaited
        self._tracebacks: dict[str, list[_Traceback]] = {}  # in the order of the ranks' last ones
        self._ended: dict[str, int] = {}
        self._own: _Traceback | None = None  # horovodrun's
        self._tail = False
        self._unreached = False

    def out(self, piece: str) -> None:
        """A piece of standard output, up to the end of a line or a carriage return, with it."""
        with self._lock:
            line = piece.rstrip("\r\n")
            ended = _ENDED.fullmatch(line)
            if ended:
                self._ended.setdefault(ended[1], int(ended[2]))
            elif not _OTHERS_ENDED.fullmatch(line):
                self._show["out"](piece)

    def err(self, piece: str) -> None:
        """The same of standard error."""
        with self._lock:
            marked = _MARKED.match(piece)
            if marked is None:
                self._of_horovodrun(piece)
            elif not self._withheld(marked[1], marked[2].rstrip("\r")):
                self._show["err"](piece)

    def _withheld(self, rank: str, line: str) -> bool:
        problem, remedy = _USER_ERROR.match(line), _REMEDY.match(line)
        if problem:
            self._begun[rank] = problem[1]
            return True
        if remedy and rank in self._begun:
            self._user_errors.setdefault((self._begun.pop(rank), remedy[1]), []).append(rank)
            return True
        mine = self._tracebacks.get(rank, [])
        if line == _TRACEBACK and not (mine and not mine[-1].error):
            self._tracebacks.pop(rank, None)
            self._tracebacks[rank] = [*mine, _Traceback()]
        elif mine and not mine[-1].error:
            mine[-1].add(line)
        return False

    def _of_horovodrun(self, piece: str) -> None:
        line = piece.rstrip("\r\n")
        if self._own is None and line == _TRACEBACK:
            self._own = _Traceback([piece])
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

    def ended(self, code: int) -> list[UserError]:
        """Everything was said, and horovodrun ended with `code`: what is to be said of a failure."""
        if self._own is not None:
            self._show["err"]("".join(self._own.lines))
        if self._unreached:
            return [
                UserError(
                    "horovodrun does not reach the hosts named above by ssh.",
                    "`ssh HOST true` must work from here and ask for nothing; `paceline doctor -H HOST` looks at more.",
                )
            ]
        by_users = [
            UserError(f"{_named(ranks)}: {problem}", remedy) for (problem, remedy), ranks in self._user_errors.items()
        ]
        causes = {rank: many for rank, many in self._tracebacks.items() if not any(map(_is_consequence, many))}
        if not code or (by_users and not causes):
            return by_users
        # Without a Python error: not those that horovodrun ended after the first.
        silent = [
            rank for rank in self._ended if rank not in self._tracebacks and self._ended[rank] not in _ASKED_TO_END
        ]
        if causes or (self._tracebacks and not silent):
            return [self._with_traceback(causes or self._tracebacks, code), *by_users]
        return [self._without(rank) for rank in [*silent, *self._ended][:1]]

    @staticmethod
    def _with_traceback(of_ranks: dict[str, list[_Traceback]], code: int) -> UserError:
        rank, many = next(iter(of_ranks.items()))
        last = many[-1]  # what nobody caught
        place = f" ({last.place})" if last.place else ""
        return UserError(
            f"Rank {rank} failed first: {last.error or 'its last words are cut short'}{place}",
            f"Its whole traceback stands above, in the lines marked [{rank}]<stderr>. Exit code {code}.",
        )

    def _without(self, rank: str) -> UserError:
        status = self._ended[rank]
        return UserError(f"Rank {rank} failed first, with exit code {status}{_by_signal(status)}.", _hint(status))


def _is_consequence(one: _Traceback) -> bool:
    return any(words in one.error for words in CONSEQUENCES)


def _named(ranks: list[str]) -> str:
    numbers = ", ".join(sorted(ranks, key=int))
    return f"Rank{'s' * (len(ranks) > 1)} {numbers}"


def _by_signal(status: int) -> str:
    number = status - 128 if status > 128 else -status
    try:
        return f": ended by {signal.Signals(number).name}" if number > 0 else ""
    except ValueError:
        return ""


def _hint(status: int) -> str:
    if status in (128 + signal.SIGKILL, -signal.SIGKILL):
        return "The system kills what takes too much memory: `dmesg` tells. Use smaller batches or fewer ranks."
    return "It said nothing of a Python error; run the script on one rank (-np 1) to see more."


def passed_on(around: Callable[[Callable[[str], None]], Callable[[str], None]]) -> Ranks:
    """Shown are the lines where ours go; each stream's writer is `around` what writes there."""

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

    return Ranks(writer("stdout"), writer("stderr"))
