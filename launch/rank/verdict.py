"""Which rank failed first, when one failure makes others fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paceline.launch.failures.reason import follows_from_an_end, uneven_data
from paceline.launch.failures.tracebacks import CONSEQUENCES
from paceline.launch.rank.messages import Ended, Verdict


class Left(NamedTuple):
    """A rank that ended well."""

    rank: int
    host: str


@dataclass(frozen=True)
class Failure:
    """A rank that did not end well. `host`: "" if unknown. `lost`: its task left without a word.

    The other fields: paceline.launch.passing.Ended.
    """

    rank: int
    host: str
    code: int
    how: str
    asked: bool = False
    lost: bool = False
    lines: tuple[str, ...] = ()
    error: str = ""
    consequence: bool = False

    @classmethod
    def of(cls, ended: Ended, rank: int, host: str) -> Failure:
        """Return the failure that a task reported."""
        return cls(
            rank, host, ended.code, ended.how, ended.asked, lines=tuple(ended.lines), error=ended.error,
            consequence=ended.consequence,
        )  # fmt: skip

    @property
    def is_consequence(self) -> bool:
        """Whether it says itself that it failed because of another rank."""
        return self.consequence or any(mark in line for line in self.lines for mark in CONSEQUENCES)


def judge(failures: Sequence[Failure], early: Sequence[Left] = ()) -> Verdict:
    """The first of `failures`, in the order in which they were heard of, that is nobody else's consequence.

    A rank that raises takes a while to end, and ranks that noticed its silence may be heard of before it. Where all
    follow from the end of a rank that ended well, the first of `early` is named.
    """
    first = min(failures, key=lambda one: (one.asked, one.is_consequence and not one.lost))
    if early and not first.lost and any(map(follows_from_an_end, (first.error, *first.lines))):
        waiting = [str(one.rank) for one in failures if not one.asked]
        errors = [line for one in failures for line in (one.error, *one.lines)]
        uneven = uneven_data(f"Rank {early[0].rank}{_on(early[0].host)} ended its script", waiting, errors)
        return Verdict(early[0].rank, f"{uneven.problem} {uneven.remedy}", [], first.code)
    others = sorted(one.rank for one in failures if one is not first)
    after = f" After it failed: rank {', '.join(map(str, others))}." if others else ""
    error = f": {first.error}" if first.error else ""
    return Verdict(
        first.rank, f"Rank {first.rank}{_on(first.host)} {first.how}{error}.{after}", list(first.lines), first.code
    )


def _on(host: str) -> str:
    return f" on {host}" if host else ""
