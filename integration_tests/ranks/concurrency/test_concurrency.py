"""Activities beside a training: `make test` runs a dozen cases, `make test-more` about ninety, `make soak` all."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.concurrency import job
from integration_tests.concurrency.activities.of_case import EVERYTHING, made_of
from integration_tests.concurrency.cases import Case
from integration_tests.concurrency.runs import run_case
from integration_tests.concurrency.table import (
    ACTIVITIES,
    EXCHANGES,
    FRAMEWORKS,
    REFUSALS,
    RULES,
    SIZES,
    cases,
    combinations,
)
from integration_tests.support.event_training import EventTraining
from integration_tests.support.events import ARMED, COLUMNS, RESIDUAL
from integration_tests.support.ranks import RankFailed, run_ranks
from integration_tests.support.selection import spread

MORE = 90
ALL = cases()
CHOSEN = [
    Case("twin", "pipelined", "torch", "", 2),
    Case("barrier", "local", "torch", "", 2),
    Case("evaluation", "split", "torch", "", 2),
    Case("thread_optimizer", "pipelined", "torch", "", 2),
    Case("hand_made", "majority", "torch", "", 3),
    Case("broadcasts", "split", "torch", "", 3),
    Case("join", RESIDUAL, "torch", "", 3),
    Case("other_optimizer", "partial", "torch", "", 3),
    Case("set_optimizers", "sync", "torch", "", 3),
    Case("everything", "pipelined", "torch", "", 3),
    Case("changing_sets", ARMED, "torch", "", 3),
    Case("two_sets", ARMED, "torch", "", 3),
    Case("join", "split", "torch", "", 2),
    Case("everything", "sync", "keras", "tensorflow", 2),
]


def _assert_right(case: Case) -> None:
    line = run_case(case)
    print(line)
    assert not line.problem, f"{line}\n{line.problem}"


@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_activities(case: Case) -> None:
    _assert_right(case)


@pytest.mark.more
@pytest.mark.parametrize("case", spread([case for case in ALL if case.size < max(SIZES)], MORE), ids=str)
def test_activities_spread_over_the_matrix(case: Case) -> None:
    _assert_right(case)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_all_activities() -> None:
    failed = [line for line in map(run_case, ALL) if line.problem]
    assert not failed, "\n".join(map(str, failed))


# --- the matrix itself: cases that find nothing would accept everything.


def _lose_a_gradient(rank: int, size: int, case: Case) -> None:
    class Lossy(EventTraining):
        def backward(self, *arguments: Any, **options: Any) -> None:
            super().backward(*arguments, **options)
            if self.number == 7 and rank == 1:
                self.weights["b"].data[5] += 1e-6

    job.run(rank, size, case, Lossy, refused=False)


def _gather_too_little(own: int, size: int, case: Case) -> None:
    class Short(job.Job):
        def values(self, rank: int, number: int, elements: int = 300, dtype: str = "float64") -> Any:
            found = super().values(rank, number, elements, dtype)
            return found + 1 if rank == own == 1 else found  # its input differs from what it expects of itself

    job.run(own, size, case, EventTraining, refused=False, made=Short)


@pytest.mark.parametrize(
    ("body", "activity", "text"),
    [(_lose_a_gradient, "barrier", "b is off by"), (_gather_too_little, "hand_made", "not equal")],
)
def test_a_wrong_value_is_found(body: Any, activity: str, text: str) -> None:
    with pytest.raises(RankFailed, match=f"(?s){text}"):
        run_ranks(body, 2, Case(activity, "sync", "torch", "", 2), fresh=True)


def test_every_axis_has_cases_and_every_rule_a_reason_to_be() -> None:
    assert {case.activity for case in ALL} == set(ACTIVITIES) == {*made_of(), EVERYTHING}
    assert {case.exchange for case in ALL} == set(EXCHANGES) >= {*COLUMNS}
    assert {(case.framework, case.backend) for case in ALL} == set(FRAMEWORKS)
    assert {case.size for case in ALL} == set(SIZES)
    everything = combinations()
    assert len(everything) == len(set(everything))
    for rule in RULES:
        assert any(map(rule.excludes, everything)), rule.reason
    for one in REFUSALS:
        assert any(map(one.matches, ALL)), one.reason
