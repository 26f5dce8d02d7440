"""Which of several failed ranks was first."""

from __future__ import annotations

import pytest

from paceline.launch.rank.verdict import Failure, judge

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
