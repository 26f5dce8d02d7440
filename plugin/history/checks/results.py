"""Results of checks: numbers of comparisons, and violations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class Check(Enum):
    """Checks, in the order of the report."""

    COMPLETE = "every rank has a history"
    PRODUCED = "what was applied was produced"
    ONCE = "nothing was applied twice"
    SAME = "all ranks received the same result"
    SUM = "results are the sums of what was produced"
    STALE = "staleness within the bound"
    QUORUM = "rounds had their quorum"
    KEPT = "every gradient was applied, or reported as lost"
    WEIGHTS = "weights are equal on all ranks"
    MEAN = "averages are the means of what was submitted"


@dataclass(frozen=True)
class Violation:
    """One finding: `step` is 0 where there is none."""

    check: Check
    rank: int
    tensor: str
    step: int
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"rank {self.rank}" + (f", {self.tensor}" if self.tensor else "")
        step = f", step {self.step}" if self.step else ""
        return f"{self.check.value}: {where}{step}: expected {self.expected}, found {self.found}"


@dataclass
class Result:
    """Comparisons of one check, and how many of them found a violation.

    Attributes:
        compared: number of comparisons.
        skipped: comparisons that cannot be made: of a codec that rounds, of NaN, of a rank that was killed.
        sensitive: of the comparisons of sums, those in which any one missing contribution would have been found.
    """

    compared: int = 0
    skipped: int = 0
    sensitive: int = 0
    violations: list[Violation] = field(default_factory=list)


class Results:
    """Results of all checks, and notes about what a reader must know."""

    def __init__(self) -> None:
        self.by_check = {check: Result() for check in Check}
        # Gradients that were lost and reported, by reason.
        self.lost: dict[str, int] = {}

    def __getitem__(self, check: Check) -> Result:
        return self.by_check[check]

    def compare(
        self, check: Check, good: bool, rank: int, tensor: str, step: int, expected: object, found: object
    ) -> None:
        """Count a comparison, and add a violation unless it is `good`."""
        result = self.by_check[check]
        result.compared += 1
        if not good:
            result.violations.append(Violation(check, rank, tensor, step, str(expected), str(found)))

    def skip(self, check: Check, count: int = 1) -> None:
        """Count a comparison that cannot be made."""
        self.by_check[check].skipped += count

    def lose(self, reason: str, count: int) -> None:
        """Count gradients that were lost and reported."""
        if count:
            self.lost[reason] = self.lost.get(reason, 0) + count

    @property
    def compared(self) -> int:
        """Number of all comparisons."""
        return sum(one.compared for one in self.by_check.values())

    @property
    def violations(self) -> list[Violation]:
        """All violations, in the order of the checks."""
        return [one for result in self.by_check.values() for one in result.violations]


def listed(numbers: Iterable[object]) -> str:
    """Return numbers with commas between them, for a message."""
    return ", ".join(map(str, numbers))
