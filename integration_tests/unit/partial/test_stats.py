"""hvd.exchange_stats(): shares, differences, and the line that is printed."""

from __future__ import annotations

from paceline.partial.stats import ExchangeStats


def test_difference_is_what_was_added() -> None:
    earlier = ExchangeStats(1, 10, 8, 2, 2, 1, (8, 1, 1, 0))
    now = ExchangeStats(2, 25, 20, 5, 4, 3, (20, 4, 1, 0))
    added = now.since(earlier)
    assert added == ExchangeStats(2, 15, 12, 3, 2, 2, (12, 3, 0, 0))
    assert added.in_time == 0.8 and added.most_late == 1 and now.most_late == 2
    assert str(added) == "15 rounds of 2 tensors: in time 80.0%, carried over 2, missed 2, at most 1 rounds late"
    nothing = ExchangeStats(0, 0, 0, 0, 0, 0, (0, 0))
    assert nothing.in_time == 1 and nothing.most_late == 0
    assert str(nothing) == "no tensor is exchanged partially"
