"""The reason of a failed run, in two lines: which rank failed first, and what to do."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.errors import UserError
from paceline.launch.failures.tracebacks import Tracker

UNREACHED = UserError(
    "horovodrun does not reach the hosts named above by ssh.",
    "`ssh HOST true` must work from here and ask for nothing; `paceline doctor -H HOST` looks at more.",
)
_ASKED_TO_END = (128 + signal.SIGTERM, -signal.SIGTERM)
_KILLED = (128 + signal.SIGKILL, -signal.SIGKILL)
_SSH_LOST = 255
_ENDED_EARLY = ("has been shut down", "HorovodEnded")
_GRADIENT = re.compile(r"Gradient of '([^']+)'")
_MOST_ERRORS = 3  # of the user's, of different texts
_LAST_LINES = 10  # of a rank that wrote no traceback


@dataclass(frozen=True)
class Report:
    """What is shown of a failure: `lines` of the rank that failed first, then `errors`."""

    lines: list[str]
    errors: list[UserError]

    def with_file(self, path: Path | None) -> Report:
        """Return the same with the name of the file that has the output of all ranks."""
        if path is None or not self.errors:
            return self
        first, *others = self.errors
        named = UserError(first.problem, f"{first.remedy} The output of all ranks: {path}")
        return Report(self.lines, [named, *others])


@dataclass
class Found:
    """What the output says of the ranks, by rank. `hosts`: {} where unknown."""

    hosts: dict[str, str]
    user_errors: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # problem and remedy: ranks
    tracebacks: dict[str, Tracker] = field(default_factory=dict)  # in the order of the ranks' last ones
    lived_on: set[str] = field(default_factory=set)  # after their tracebacks
    ended: dict[str, int] = field(default_factory=dict)  # exit codes other than 0, in the order of ends
    left: dict[str, int] = field(default_factory=dict)  # steps of ranks that left in order

    def said_to_exit(self, exits: Mapping[str, int]) -> None:
        """Take the statuses with which ranks said to exit, in order: they count where horovodrun ended the rank."""
        ended, self.ended = self.ended, {}
        for rank, status in exits.items():
            known = ended.get(rank, status)
            self.ended[rank] = status if known in _ASKED_TO_END else known
        self.ended.update({rank: status for rank, status in ended.items() if rank not in exits})

    def users(self) -> list[UserError]:
        """Return the errors of the user's, each once."""
        found = list(self.user_errors.items())[:_MOST_ERRORS]
        return [UserError(f"{_named(ranks)}: {problem}", remedy) for (problem, remedy), ranks in found]

    def report(self, code: int, withheld: Sequence[str], interrupted: bool) -> Report:
        """Return the report on a run that ended with `code`, not 0. `withheld`: lines of ranks that were not shown.

        Where the run was `interrupted`, ends of ranks that have no error of their own follow from that.
        """
        causes = [rank for rank, tracker in self.tracebacks.items() if not tracker.is_consequence]
        fresh = [rank for rank in causes if rank not in self.lived_on]
        if self.user_errors and not fresh:
            return Report([], self.users())
        if interrupted and not fresh:
            return Report([], [])
        silent = [rank for rank, status in self.ended.items() if self._is_silent(rank, status)]
        if not fresh and silent:
            return self._without(silent[0], withheld)
        if not causes and (early := self._early()):
            return Report([], [self._uneven(early)])
        if those := fresh or causes or list(self.tracebacks):
            return self._with_traceback(those[0], code)
        return self._without(next(iter(self.ended)), withheld) if self.ended else Report([], [])

    def _is_silent(self, rank: str, status: int) -> bool:
        # Not those that horovodrun ended after the first one failed.
        if status in _ASKED_TO_END:
            return False
        return rank not in self.tracebacks or (rank in self.lived_on and status != 1)

    def _early(self) -> list[str]:
        """Return the ranks that ended well while others went on, the ones with the fewest steps first."""
        if not any(map(follows_from_an_end, self._errors())):
            return []
        known = [rank for rank in self.hosts if self.ended and rank not in self.ended and rank not in self.tracebacks]
        return sorted(self.left, key=lambda rank: self.left[rank]) or known

    def _errors(self) -> list[str]:
        return [one.error for tracker in self.tracebacks.values() for one in tracker.own[-1:]]

    def _uneven(self, early: list[str]) -> UserError:
        rank = early[0]
        steps = f" after {self.left[rank]} steps" if self.left.get(rank) else ""
        waiting = [one for one in self.tracebacks if one not in early]
        return uneven_data(f"Rank {rank} ended its script{steps}", waiting, self._errors())

    def _with_traceback(self, rank: str, code: int) -> Report:
        tracker = self.tracebacks[rank]
        last = (tracker.own or tracker.many)[-1]  # what nobody caught
        error = UserError(f"Rank {rank} failed first: {last.reason()}", f"Exit code {code}.")
        return Report([f"Traceback of rank {rank}:", *last.excerpt()], [error])

    def _without(self, rank: str, withheld: Sequence[str]) -> Report:
        status = self.ended[rank]
        host = self.hosts.get(rank, "")
        on_host = f" on {host}" if host and len(set(self.hosts.values())) > 1 else ""
        last = [line.rstrip("\r\n") for line in withheld if re.match(rf"\[(\d+,)?{rank}\]", line)][-_LAST_LINES:]
        error = UserError(
            f"Rank {rank}{on_host} failed first, with exit code {status}{_by_signal(status)}.", _hint(status, host)
        )
        return Report(last, [error])


def follows_from_an_end(error: str) -> bool:
    """Return True for an error that ranks raise where another one has ended."""
    return any(words in error for words in _ENDED_EARLY)


def uneven_data(ended: str, waiting: list[str], errors: Iterable[str]) -> UserError:
    """Return the error of ranks that wait for one that `ended`, a clause, and what these ranks raised."""
    gradient = next((found[1] for error in errors if (found := _GRADIENT.search(error))), None)
    s = "" if len(waiting) > 1 else "s"
    wait = f"wait{s} for the gradient of {gradient!r}" if gradient else f"go{'e' * len(s)}{s} on"
    join = ", or call hvd.join() after the last batch" if gradient else ""
    return UserError(
        f"{ended} while {_named(waiting).lower()} {wait}: uneven data.",
        f"Give all ranks the same number of batches{join} (docs/launching.md, Uneven data).",
    )


def _named(ranks: list[str]) -> str:
    numbers = ", ".join(sorted(ranks, key=int))
    return f"Rank{'s' * (len(ranks) > 1)} {numbers}"


def _by_signal(status: int) -> str:
    number = status - 128 if status > 128 else -status
    try:
        return f": ended by {signal.Signals(number).name}" if number > 0 else ""
    except ValueError:
        return ""


def _hint(status: int, host: str) -> str:
    if status in _KILLED:
        return "The system kills what takes too much memory: `dmesg` tells. Use smaller batches or fewer ranks."
    if status == _SSH_LOST and host not in ("", "localhost", "127.0.0.1", socket.gethostname()):
        return (
            f"ssh ends with {_SSH_LOST} where a rank is killed or the connection breaks: see `dmesg` on {host}, and "
            "whether that host still runs."
        )
    return "It wrote no traceback: sys.exit() and os._exit() end a script like that. Look for the exit code in it."
