"""The closed forms of waits for late ranks."""

from __future__ import annotations

import pytest

from paceline.examples.benchmarks.skew import model


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 32])
def test_the_closed_forms_are_what_every_rank_waits(ranks: int) -> None:
    def waits(trigger: int) -> float:
        return sum(max(0, trigger - rank) for rank in range(ranks)) / ranks

    assert model.expected_wait("sync", ranks) == pytest.approx(waits(ranks - 1)) == pytest.approx((ranks - 1) / 2)
    drawn = sum(map(waits, range(ranks))) / ranks
    assert model.expected_wait("random", ranks) == pytest.approx(drawn) == pytest.approx((ranks**2 - 1) / (6 * ranks))
    assert model.expected_wait("majority", ranks) == pytest.approx(waits(-(-ranks // 2) - 1))
    assert model.expected_wait("solo", ranks) == waits(0) == 0
    assert model.expected_fresh("random", ranks) == (ranks + 1) / 2


def test_a_late_rank_saves_the_transfer() -> None:
    # Of 4 ranks 2 come in time and wait 1 and 0 skews; the others take the result without the transfer of 0.4 skews.
    assert model.with_transfer([2], 4, 0.4) == pytest.approx(1 / 4 - 0.4 / 2)
    assert model.with_transfer([4, 4], 4, 0.4) == pytest.approx(1.5)
