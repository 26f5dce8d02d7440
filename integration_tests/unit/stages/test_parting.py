"""Ranks that end together, in threads: none goes before all have come."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from integration_tests.support.stage_threads import QueueMail, in_threads
from paceline.native.mail import HorovodEnded, StageLost
from paceline.stages.execution.parting import part
from paceline.stages.execution.posting import Mail, Post


@pytest.mark.parametrize("last", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 3])
def test_nobody_goes_before_the_last_has_come(size: int, last: int) -> None:
    going: list[str] = []
    comes = threading.Event()

    def stage(mail: QueueMail) -> None:
        if mail.rank == min(last, size - 1):
            comes.wait(0.3)
            going.append("last comes")
        part(Post(mail))
        going.append("goes")

    in_threads(size, stage)
    assert going == ["last comes", *["goes"] * size]


class Ends:
    """Of three ranks this one is `rank`; Horovod ends at its operation `number`."""

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.size = rank, 3
        self._left = number

    def send(self, *_: Any) -> int:
        self._left -= 1
        return 0

    receive = send

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        if self._left < 0:
            raise HorovodEnded("Horovod was shut down")


def test_an_end_of_horovod_is_expected_once_all_have_come() -> None:
    for rank, each in ((0, 4), (1, 2)):
        for number in range(each):
            with pytest.raises(StageLost):
                part(Post(cast(Mail, Ends(rank, number))))
        for number in range(each, 2 * each + 1):
            part(Post(cast(Mail, Ends(rank, number))))
