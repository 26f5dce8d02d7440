"""Which of several failed ranks was first."""

from __future__ import annotations

import pytest

from paceline.failure.reports import Failed
from paceline.launch.failures.verdict import Fate, decide

HOSTS = dict(enumerate("abcd"))
INTERNAL = "horovod.common.exceptions.HorovodInternalError: rank 1 is gone"


def own(rank: int = 1) -> Fate:
    return Fate(rank, Failed("ValueError: on purpose", lines=["ValueError: on purpose"]), 1)


NOTICED = Fate(0, Failed(INTERNAL, follows="failure"), 1)
ASKED = Fate(2, status=143, asked=True)
LOST = Fate(3, status=1, how="is gone")
EXITED = Fate(2, status=7)
WAIT = [Fate(rank, Failed(INTERNAL, follows="end"), 1) for rank in (0, 2)]


@pytest.mark.parametrize(
    ("fates", "rank"),
    [
        ([own()], 1),
        ([NOTICED, own()], 1),
        ([NOTICED, Fate(1, NOTICED.failed, 1)], 0),
        ([ASKED, NOTICED], 0),
        ([ASKED], 2),
        ([NOTICED, LOST], 3),
        ([own(), LOST], 1),
        ([NOTICED, EXITED], 2),
        ([own(2), own(1)], 2),
        ([own(), *WAIT, Fate(3, status=0)], 1),
    ],
)
def test_the_first_that_is_nobody_elses_consequence(fates: list[Fate], rank: int) -> None:
    assert decide(fates, HOSTS, 1).rank == rank


def test_an_error_of_the_users_is_no_cause_where_another_rank_has_one() -> None:
    users = Fate(0, Failed("ranks did not meet.", "train.py, line 9", remedy="Look there."), 1)
    assert decide([users, own()], HOSTS, 1).rank == 1
    assert decide([users, NOTICED], HOSTS, 1).errors == [
        ("Rank 0: train.py, line 9: ranks did not meet.", "Look there.")
    ]
