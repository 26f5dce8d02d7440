"""What each of upstream's files is expected to give (expectations.toml), and the verdict on what it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration_tests.upstream.outcomes import RankOutcome
from integration_tests.upstream.toml import load

TABLE = Path(__file__).with_name("expectations.toml")
AS_EXPECTED, BETTER, WORSE = "as expected", "better", "worse"


@dataclass(frozen=True)
class Expectation:
    """One file's row. `ranks`: the numbers of processes for which the row is known to hold, the usual one first."""

    path: str
    passed: int
    limit_s: float
    ranks: tuple[int, ...] = (2,)
    # Test -> why it may fail.
    may_fail: Mapping[str, str] = field(default_factory=dict)
    # Number of ranks -> what else may fail with that many or more.
    may_fail_from: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def excused(self, size: int) -> frozenset[str]:
        """Tests that are among `passed`, and may fail with `size` ranks all the same."""
        return frozenset(test for least, tests in self.may_fail_from.items() if size >= least for test in tests)

    @property
    def folder(self) -> str:
        """parallel, single or integration: how the file is run follows from it."""
        return self.path.split("/")[0]


def load_table(path: Path = TABLE) -> dict[str, Expectation]:
    """Path below upstream's test folder -> its row, in the order of the file."""
    rows = {}
    for name, row in load(path)["files"].items():
        values: dict[str, Any] = {
            **row,
            "ranks": tuple(row.get("ranks", (2,))),
            "may_fail_from": {int(least): tests for least, tests in row.get("may_fail_from", {}).items()},
        }
        rows[name] = Expectation(path=name, **values)
    return rows


@dataclass(frozen=True)
class Verdict:
    """One word, and a sentence for each thing that differs from the expectation."""

    word: str
    remarks: tuple[str, ...]


def judge(row: Expectation, ranks: Sequence[RankOutcome], timed_out: bool) -> Verdict:
    """Worse if a rank did not finish, a test failed that may not, or fewer passed than expected."""
    excused = row.excused(len(ranks))
    may_fail = {*row.may_fail, *excused}
    worse, better = [], []
    if timed_out:
        worse.append(f"was ended after {row.limit_s:g} s")
    for outcome in ranks:
        if not outcome.finished:
            last = f" in {outcome.unreached[0]}" if outcome.unreached else ""
            worse.append(f"rank {outcome.rank} did not finish{last}; {len(outcome.unreached)} tests have no outcome")
    failed: dict[str, list[int]] = {}
    for outcome in ranks:
        for name in outcome.failed:
            failed.setdefault(name, []).append(outcome.rank)
    for name, where in sorted(failed.items()):
        if _function(name) not in may_fail:
            text = next(outcome.failed[name] for outcome in ranks if name in outcome.failed)
            first_line = (text.strip().splitlines() or ["no message"])[0]
            worse.append(f"{name} failed on {_ranks(where)}: {first_line[:200]}")
    fewest = min((len(outcome.passed | excused) for outcome in ranks), default=0)
    if fewest < row.passed:
        worse.append(f"{fewest} passed where {row.passed} are expected to")
    elif fewest > row.passed:
        better.append(f"{fewest} passed where {row.passed} are expected to: raise the number in {TABLE.name}")
    good = set.intersection(*(outcome.passed for outcome in ranks)) if ranks else set()
    better += [f"{name} may fail but passed" for name in sorted(may_fail & good - {_function(name) for name in failed})]
    word = WORSE if worse else BETTER if better else AS_EXPECTED
    return Verdict(word, tuple(worse + better))


def _function(name: str) -> str:
    """A test's name without its subtest and parameters."""
    return name.split(" (")[0].split("[")[0]


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
