"""State put back after an elastic reset: all that was taken, or nothing on any rank if one has lost it."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest

from integration_tests.support.ranks import ranks
from paceline.exchange import elastic
from paceline.native.library import loaded


class _Holder:
    """Holds a value of this rank through a reset; fails to take it where `lost`."""

    def __init__(self, value: int, lost: bool) -> None:
        self.value, self.lost = value, lost
        self.got: list[int] = []

    def take(self) -> int:
        if self.lost:
            raise RuntimeError("a rank was lost in the reset")
        return self.value

    def put(self, value: int) -> None:
        self.got.append(value)


@pytest.mark.parametrize("lost", [False, True])
@ranks(2, 3, hvd="paceline.torch")
def test_all_ranks_get_what_they_had_or_none_does(rank: int, size: int, hvd: Any, lost: bool) -> None:
    library = loaded("torch")
    holder = _Holder(100 + rank, lost and rank == size - 1)
    elastic.carry_over(library, holder.take, holder.put)
    elastic.before_reset(library)
    with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
        elastic.after_init(library)
        assert holder.got == ([] if lost else [100 + rank])
        elastic.after_init(library)  # nothing is put back twice
    assert holder.got == ([] if lost else [100 + rank])


@ranks(2, hvd="paceline.torch")
def test_a_new_rank_has_nothing_and_the_others_get_what_they_had(rank: int, size: int, hvd: Any) -> None:
    library = loaded("torch")
    holder = _Holder(100 + rank, False)
    elastic.carry_over(library, holder.take, holder.put)
    if rank == 0:
        elastic.before_reset(library)
    with mock.patch.dict(os.environ, {"HOROVOD_ELASTIC": "1"}):
        elastic.after_init(library)
    assert holder.got == ([100] if rank == 0 else [])
