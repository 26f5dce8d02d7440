"""Which of several failed ranks was first."""

from __future__ import annotations

import pytest

from paceline.launch.rank.verdict import Failure, Left, judge

INTERNAL = ("horovod.common.exceptions.HorovodInternalError: rank 1 is gone",)
OWN = Failure(1, "b", 1, "ended with exit code 1", lines=("ValueError: on purpose",))
NOTICED = Failure(0, "a", 1, "ended with exit code 1", lines=INTERNAL)
ASKED = Failure(2, "c", 143, "was ended by SIGTERM", asked=True)
LOST = Failure(3, "d", 1, "is gone", lost=True)


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        ([OWN], 1),
        ([NOTICED, OWN], 1),
        ([NOTICED, NOTICED], 0),
        ([ASKED, NOTICED], 0),
        ([ASKED], 2),
        ([NOTICED, LOST], 3),
        ([OWN, LOST], 1),
    ],
)
def test_the_first_that_is_nobody_elses_consequence(failures: list[Failure], rank: int) -> None:
    assert judge(failures).rank == rank


def test_the_verdict_names_rank_host_end_and_who_came_after() -> None:
    verdict = judge([NOTICED, OWN])
    assert verdict.problem == "Rank 1 on b ended with exit code 1. After it failed: rank 0."
    assert verdict.lines == ["ValueError: on purpose"]
    assert verdict.code == 1


def test_a_rank_that_ended_before_the_others_is_named() -> None:
    error = "HorovodInternalError: Gradient of 'fc.weight': Horovod has been shut down."
    failed = [Failure(rank, "a", 1, "ended with exit code 1", error=error, consequence=True) for rank in (0, 2)]
    verdict = judge(failed, [Left(1, "b")])
    assert verdict.problem.startswith(
        "Rank 1 on b ended its script while ranks 0, 2 wait for the gradient of 'fc.weight': uneven data."
    )
    assert (verdict.rank, verdict.code) == (1, 1)
    assert judge([OWN, *failed], [Left(3, "b")]).rank == 1
