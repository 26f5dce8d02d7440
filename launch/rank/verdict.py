"""Which rank failed first, when one failure makes others fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.launch.failures.tracebacks import CONSEQUENCES
from paceline.launch.rank.messages import Verdict


@dataclass(frozen=True)
class Failure:
    """A rank that did not end well. `host`: "" if unknown. `lost`: its task left without a word."""

    rank: int
    host: str
    code: int
    how: str
    asked: bool = False
    lost: bool = False
    lines: tuple[str, ...] = ()

    @property
    def is_consequence(self) -> bool:
        """Whether it says itself that it failed because of another rank."""
        return any(mark in line for line in self.lines for mark in CONSEQUENCES)


def judge(failures: Sequence[Failure]) -> Verdict:
    """The first of `failures`, in the order in which they were heard of, that is nobody else's consequence.

    A rank that raises takes a while to end, and ranks that noticed its silence may be heard of before it.
    """
    first = min(failures, key=lambda one: (one.asked, one.is_consequence and not one.lost))
    others = sorted(one.rank for one in failures if one is not first)
    after = f" After it failed: rank {', '.join(map(str, others))}." if others else ""
    on_host = f" on {first.host}" if first.host else ""
    return Verdict(first.rank, f"Rank {first.rank}{on_host} {first.how}.{after}", list(first.lines), first.code)
