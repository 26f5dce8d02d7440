"""Outcome of one rank's run of a file, expectation for the file (expectations.toml), and the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec


@dataclass
class RankOutcome:
    """One rank's run of one file. Tests are named as in the file: `test_x`, `test_x[parameter]`."""

    rank: int
    collected: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    # Error message by test, with its subtest in parentheses if that failed.
    failed: dict[str, str] = field(default_factory=dict)
    finished: bool = False

    @property
    def unreached(self) -> list[str]:
        """Tests without an outcome, in order: the first of them hung, or was running when the rank died."""
        reached = self.passed | self.skipped | {name.split(" (")[0] for name in self.failed}
        return [name for name in self.collected if name not in reached]


def _name(node: str) -> str:
    return node.split("::")[-1]


def read(path: Path, rank: int) -> RankOutcome:
    result = RankOutcome(rank)
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    for line in lines:
        event = json.loads(line)
        if "collected" in event:
            result.collected = [_name(node) for node in event["collected"]]
        elif "finished" in event:
            result.finished = True
        else:
            _count(result, event)
    # Teardown may fail after the call passed; a test counts once.
    result.passed -= set(result.failed)
    return result


def _count(result: RankOutcome, event: dict[str, str]) -> None:
    name = _name(event["test"])
    if event["outcome"] == "failed":
        if event.get("subtest"):
            name = f"{name} ({event['subtest']})"
        result.failed.setdefault(name, event["text"])
    elif event.get("subtest"):
        return  # a subtest that passed or was skipped is part of its test
    elif event["outcome"] == "skipped":
        result.skipped.add(name)
    elif event["when"] == "call":
        result.passed.add(name)


TABLE = Path(__file__).with_name("expectations.toml")
AS_EXPECTED, BETTER, WORSE = "as expected", "better", "worse"


@dataclass(frozen=True)
class Expectation:
    """One file's row. `ranks`: numbers of processes for which the row is known to hold, the usual one first."""

    path: str
    passed: int
    limit_s: float
    ranks: tuple[int, ...] = (2,)
    # Reason by test that may fail.
    may_fail: Mapping[str, str] = field(default_factory=dict)
    # Further tests that may fail with this number of ranks or more.
    may_fail_from: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def excused(self, size: int) -> frozenset[str]:
        """Tests counted in `passed` that may nevertheless fail with `size` ranks."""
        return frozenset(test for least, tests in self.may_fail_from.items() if size >= least for test in tests)

    @property
    def folder(self) -> str:
        """parallel, single or integration; determines how the file is run."""
        return self.path.split("/")[0]


def load_table(path: Path = TABLE) -> dict[str, Expectation]:
    """Rows by path below upstream's test folder, in the order of the file."""
    rows = {}
    for name, row in msgspec.toml.decode(path.read_bytes())["files"].items():
        values: dict[str, Any] = {
            **row,
            "ranks": tuple(row.get("ranks", (2,))),
            "may_fail_from": {int(least): tests for least, tests in row.get("may_fail_from", {}).items()},
        }
        rows[name] = Expectation(path=name, **values)
    return rows


@dataclass(frozen=True)
class Verdict:
    """One word, and a sentence for each difference from the expectation."""

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
