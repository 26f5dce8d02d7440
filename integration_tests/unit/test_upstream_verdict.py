"""The runner of Horovod's own tests: what a record amounts to, and when an outcome is worse than expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration_tests.upstream.expectations import AS_EXPECTED, BETTER, WORSE, Expectation, judge, load_table
from integration_tests.upstream.outcomes import RankOutcome, read

FILE = "parallel/test_x.py::Tests::"
ROW = Expectation(path="parallel/test_x.py", passed=2, limit_s=60, may_fail={"test_muon": "1-D parameters"})


def _phase(test: str, outcome: str, when: str = "call", **more: str) -> dict[str, Any]:
    return {"test": FILE + test, "outcome": outcome, "when": when, "text": "", **more}


def _record(path: Path, rank: int, *events: dict[str, Any]) -> RankOutcome:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return read(path, rank)


def test_records_count_a_test_once_and_name_the_one_that_a_rank_died_in(tmp_path: Path) -> None:
    tests = ["test_a", "test_b", "test_muon", "test_skip", "test_sub"]
    outcome = _record(
        tmp_path / "rank0.jsonl",
        0,
        {"collected": [FILE + test for test in tests]},
        *[_phase("test_a", "passed", when) for when in ("setup", "call", "teardown")],
        *[_phase("test_b", "passed"), _phase("test_b", "failed", "teardown", text="left open")],
        _phase("test_muon", "failed", text="2D only"),
        _phase("test_skip", "skipped", "setup"),
        *[_phase("test_sub", "failed", subtest="eager"), _phase("test_sub", "passed")],
        {"finished": 1},
    )
    assert (outcome.passed, outcome.skipped) == ({"test_a", "test_sub"}, {"test_skip"})
    assert outcome.failed == {"test_b": "left open", "test_muon": "2D only", "test_sub (eager)": ""}
    assert outcome.finished and not outcome.unreached
    both = {"collected": [FILE + "test_a", FILE + "test_b"]}
    died = _record(tmp_path / "rank1.jsonl", 1, both, _phase("test_a", "passed"))
    assert died.unreached == ["test_b"]
    verdict = judge(ROW, [died], timed_out=False)
    assert (verdict.word, verdict.remarks[0]) == (WORSE, "rank 1 did not finish in test_b; 1 tests have no outcome")
    assert judge(ROW, [read(tmp_path / "no record.jsonl", 0)], timed_out=False).word == WORSE


def test_what_may_fail_with_many_ranks_must_pass_with_fewer() -> None:
    row = Expectation(path="parallel/test_x.py", passed=2, limit_s=60, may_fail_from={3: {"test_b": "rounding"}})
    outcomes = [_outcome(rank, {"test_a"}, {"test_b": "off by one"}) for rank in range(3)]
    assert judge(row, outcomes, timed_out=False).word == AS_EXPECTED
    few = judge(row, outcomes[:2], timed_out=False)
    remarks = ("test_b failed on ranks 0, 1: off by one", "1 passed where 2 are expected to")
    assert (few.word, few.remarks) == (WORSE, remarks)
    ended = judge(ROW, [_outcome(0, {"test_a", "test_b"}, {})], timed_out=True)
    assert (ended.word, ended.remarks) == (WORSE, ("was ended after 60 s",))


def _outcome(rank: int, passed: set[str], failed: dict[str, str]) -> RankOutcome:
    return RankOutcome(rank, passed=passed, failed=failed, finished=True)


@pytest.mark.parametrize(
    ("passed", "failed", "word", "remark"),
    [
        ({"test_a", "test_b"}, {"test_muon": "2D only"}, AS_EXPECTED, None),
        ({"test_a", "test_b"}, {"test_muon[float16]": "2D only"}, AS_EXPECTED, None),
        ({"test_a", "test_muon"}, {}, BETTER, "test_muon may fail but passed"),
        ({"test_a", "test_b", "test_c"}, {}, BETTER, "3 passed where 2 are expected to"),
        ({"test_a", "test_b"}, {"test_c": "3 != 4\nmore"}, WORSE, "test_c failed on rank 1: 3 != 4"),
        ({"test_a"}, {}, WORSE, "1 passed where 2 are expected to"),
    ],
)
def test_verdict(passed: set[str], failed: dict[str, str], word: str, remark: str | None) -> None:
    # Rank 0 gives what is expected, and all that rank 1 gives where that is better.
    good = passed if word == BETTER else {"test_a", "test_b"}
    verdict = judge(ROW, [_outcome(0, good, {}), _outcome(1, passed, failed)], timed_out=False)
    assert verdict.word == word
    assert [text.startswith(remark or "") for text in verdict.remarks] == ([] if remark is None else [True])


def test_every_row_of_the_table_is_usable() -> None:
    rows = load_table().values()
    assert {row.folder for row in rows} == {"parallel", "single", "integration"}
    for row in rows:
        assert row.passed > 0 and row.limit_s > 0 and all(size > 1 for size in row.ranks), row
        assert all(reason.strip() for reason in row.may_fail.values()), row
