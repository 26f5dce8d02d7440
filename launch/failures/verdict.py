"""Verdict on a run: the rank that failed first, and why, from the reports of all ranks. No input or output here."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from paceline.failure.consequences import END
from paceline.failure.reports import Failed

_KILLED = 128 + signal.SIGKILL
_GRADIENT = re.compile(r"Gradient of '([^']+)'")
_MOST_ERRORS = 3  # number of different errors of the user shown
_MOST_RANKS = 8  # number of ranks listed


class Verdict(msgspec.Struct, tag="verdict"):
    """Errors, each a problem and its remedy, and output lines of the rank that failed first. `code`: its exit code.

    `rank` is None if several ranks have the same error, or nothing failed.
    """

    errors: list[tuple[str, str]] = []
    lines: list[str] = []
    rank: int | None = None
    code: int = 1


@dataclass
class Fate:
    """End of one rank.

    `failed`: its report, or the failure in its last lines. `status`: its exit code; may be 0. `steps`: number of steps
    of a rank whose script ended normally. `asked`: it ended on request. `lived_on`: it kept running after its failure.
    `how`, `remedy`: replace the text for the exit code. `tail`: its last lines.
    """

    rank: int
    failed: Failed | None = None
    status: int | None = None
    steps: int | None = None
    asked: bool = False
    lived_on: bool = False
    how: str = ""
    remedy: str = ""
    tail: Sequence[str] = field(default_factory=list)

    @property
    def is_cause(self) -> bool:
        """True for an error that does not follow from another rank's failure or end."""
        return self.failed is not None and not self.failed.follows and not self.asked

    @property
    def is_silent(self) -> bool:
        """True for a rank that ended by itself with an error status and reported no error."""
        if not self.status or self.asked:
            return False
        return self.failed is None or (self.lived_on and self.status != 1)


def decide(fates: Sequence[Fate], hosts: Mapping[int, str], code: int, interrupted: bool = False) -> Verdict:
    """Return the verdict on a run that ended with the nonzero exit code `code`.

    `fates`: ranks with any report, in the order of reports. `hosts`: host of each rank, {} if unknown. `interrupted`:
    the user ended the run, which explains the end of ranks without an error of their own.
    """
    causes = [one for one in fates if one.is_cause]
    fresh = [one for one in causes if not one.lived_on]
    own = [one for one in fresh if one.failed and not one.failed.remedy]
    if fresh and not own:
        return _of_users(fresh, code)
    if interrupted and not fresh:
        return Verdict(code=code)
    silent = [one for one in fates if one.is_silent]
    if not fresh and silent:
        return _first(replace(silent[0], failed=None), fates, hosts)
    if not causes and (early := _early(fates, hosts)):
        return _uneven(early, fates, hosts, code)
    candidates = own or causes or [one for one in fates if one.failed and not one.asked]
    candidates = candidates or [one for one in fates if one.status or one.failed]
    return _first(candidates[0], fates, hosts) if candidates else Verdict(code=code)


def _of_users(fates: Sequence[Fate], code: int) -> Verdict:
    ranks: dict[tuple[str, str], list[int]] = {}
    for one in fates:
        if one.failed is not None:
            problem = ": ".join(filter(None, (one.failed.place, one.failed.error)))
            ranks.setdefault((problem, one.failed.remedy), []).append(one.rank)
    errors = [(f"{ranks_text(those)}: {problem}", remedy) for (problem, remedy), those in ranks.items()]
    rank = fates[0].rank if len(fates) == 1 else None
    return Verdict(errors[:_MOST_ERRORS], rank=rank, code=fates[0].status or code)


def _first(one: Fate, fates: Sequence[Fate], hosts: Mapping[int, str]) -> Verdict:
    named, status = f"Rank {one.rank}{_on(one.rank, hosts)}", one.status or 1
    after = [other.rank for other in fates if other.rank != one.rank and (other.failed or other.status)]
    after_it = f" After it failed: {ranks_text(after).lower()}." if after else ""
    if one.failed is not None:
        place = f" ({one.failed.place})" if one.failed.place else ""
        problem = f"{named} failed first: {one.failed.error}{place}"
        lines = [f"Traceback of rank {one.rank}:", *one.failed.lines] if one.failed.lines else []
        return Verdict([(problem, f"{one.failed.remedy or f'Exit code {status}.'}{after_it}")], lines, one.rank, status)
    problem = f"{named} {one.how or f'failed first, with {exit_text(status)}'}."
    lines = [f"Output of rank {one.rank}:", *one.tail] if one.tail else []
    return Verdict([(problem, f"{one.remedy or _hint(status)}{after_it}")], lines, one.rank, status)


def _early(fates: Sequence[Fate], hosts: Mapping[int, str]) -> list[Fate]:
    """Return the ranks that ended normally while others continued, fewest steps first."""
    if not any(one.failed and one.failed.follows == END for one in fates):
        return []
    left = [one for one in fates if one.steps is not None or one.status == 0]
    known = {one.rank for one in fates}
    return sorted(left, key=lambda one: one.steps or 0) or [Fate(rank) for rank in hosts if rank not in known]


def _uneven(early: Sequence[Fate], fates: Sequence[Fate], hosts: Mapping[int, str], code: int) -> Verdict:
    first = early[0]
    waiting = [one for one in fates if one.failed and one not in early]
    s = "" if len(waiting) > 1 else "s"
    gradient = next((found[1] for one in waiting if one.failed and (found := _GRADIENT.search(one.failed.error))), None)
    wait = f"wait{s} for the gradient of {gradient!r}" if gradient else f"go{'e' * len(s)}{s} on"
    steps = f" after {first.steps} steps" if first.steps else ""
    problem = (
        f"Rank {first.rank}{_on(first.rank, hosts)} ended its script{steps} while "
        f"{ranks_text([one.rank for one in waiting]).lower()} {wait}: uneven data."
    )
    join = ", or call hvd.join() after the last batch" if gradient else ""
    remedy = f"Give all ranks the same number of batches{join} (docs/guides/launching.md, Uneven data)."
    return Verdict([(problem, remedy)], [], first.rank, next((one.status for one in waiting if one.status), code))


def ranks_text(ranks: Sequence[int]) -> str:
    """Text like "Ranks 1, 2, 5", shortened if there are many."""
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"Rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)[:_MOST_RANKS]))}{more}"


def _on(rank: int, hosts: Mapping[int, str]) -> str:
    return f" on {hosts[rank]}" if hosts.get(rank) and len(set(hosts.values())) > 1 else ""


def exit_text(status: int) -> str:
    """Text like "exit code 137: ended by SIGKILL"."""
    try:
        by = f": ended by {signal.Signals(status - 128).name}" if status > 128 else ""
    except ValueError:
        by = ""
    return f"exit code {status}{by}"


def _hint(status: int) -> str:
    if status == _KILLED:
        return "The system kills what takes too much memory: `dmesg` tells. Use smaller batches or fewer ranks."
    return "It wrote no traceback: sys.exit() and os._exit() end a script like that. Look for the exit code in it."
