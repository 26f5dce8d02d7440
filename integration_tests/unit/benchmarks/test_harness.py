"""Turns, ratios and their intervals, and the prediction of coordinations, on data whose answers are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from paceline.examples.benchmarks.harness.ratio import Interval, Ratio, each_over, median_interval, over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, compare, count_for
from paceline.examples.benchmarks.scale.prediction import (
    Constants,
    Work,
    fit,
    gathered,
    handled,
    phases,
    ring,
    time_s,
    told,
    worst_error,
)
from paceline.examples.benchmarks.scale.simulated import simulate
from paceline.examples.benchmarks.scale.systems import SYSTEMS


@pytest.mark.parametrize(
    ("values", "interval", "wide"),
    [
        ([0.75] * 7, (0.75, 0.75, 0.75), False),
        ([3.0], (3.0, 3.0, 3.0), True),
        ([1.0] * 5 + [2.0] * 5, (1.0, 1.5, 2.0), True),
        ([1.0, 1.01, 0.99, 1.0], (0.99, 1.0, 1.01), True),  # too few
        ([1.0, 1.01, 0.99, 1.0, 1.0], (0.99, 1.0, 1.01), False),
        ([1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99, 40.0], (0.99, 1.0, 1.01), False),  # an outlier
    ],
)
def test_intervals(values: list[float], interval: tuple[float, float, float], wide: bool) -> None:
    low, median, high = interval
    found = median_interval(values)
    assert found == median_interval(values) == Interval(found.median, found.low, found.high, len(values))
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high), abs=0.02)
    assert (found.median, found.wide) == (median, wide)


def test_intervals_hold_the_true_median_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    samples = [random.exponential(1.0, size=25) for _ in range(300)]
    intervals = [median_interval([float(value) for value in sample]) for sample in samples]
    holding = sum(interval.low <= np.log(2) <= interval.high for interval in intervals)
    assert 0.90 <= holding / len(intervals) <= 0.985
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


def turns(values: Sequence[float]) -> list[Turn]:
    return [Turn({"ms": value}) for value in values]


def taking(values: Sequence[float], taken: list[str] | None = None, name: str = "") -> Callable[[], Turn]:
    endless = itertools.cycle(values)

    def take() -> Turn:
        if taken is not None:
            taken.append(name)
        return Turn({"ms": next(endless)})

    return take


def test_systems_take_turns_until_their_ratio_is_narrow() -> None:
    taken: list[str] = []
    takes = {name: taking([value], taken, name) for name, value in (("stock", 2.0), ("ours", 1.0))}
    told: list[str] = []
    comparison = compare(takes, "ms", [over("ours", "stock", "ms")], Limits(60.0), told.append, "mini")
    assert taken == ["stock", "ours"] * 5 and comparison.settled, "fewer than five turns settle nothing"
    assert comparison.value(comparison.ratios[0]).median == 0.5
    assert told[-1].startswith("mini: turn 5, ours / stock 0.500 [0.500, 0.500]")


def test_turns_end_when_settled_at_their_number_and_at_the_time_limit() -> None:
    wide = {"stock": taking([1.0]), "ours": taking([1.0, 2.0])}
    ratios = [over("ours", "stock", "ms")]
    assert compare(wide, "ms", ratios, Limits(60.0, 8)).complete == 8
    assert compare(wide, "ms", ratios, Limits(1e-9)).complete == 1
    # Without ratios the figure itself settles.
    assert compare({"alone": taking([1.0, 1.01])}, "ms", (), Limits(60.0)).complete == 5
    assert not Comparison({"alone": turns([1.0, 2.0, 1.0, 2.0, 1.0])}, "ms").settled
    assert compare({"seeds": taking([1.0])}, "ms", (), Limits(60.0, 7, settles=False)).complete == 7


def test_ratios_and_intervals_of_figures_and_steps_of_a_turn() -> None:
    found = {"ours": turns([4.0, 8.0, 6.0]), "compute": turns([2.0, 4.0]), "communication": turns([1.0, 8.0])}
    value = Ratio("ours_over_max_of_parts", "ours", ("compute", "communication"), "ms").value(found)
    assert (value.median, value.count) == (1.5, 2), "a turn that is incomplete counts nothing"
    # Intervals of figures ratios over references and steps of a turn.
    assert Comparison({"alone": [Turn({"ms": 1.0, "messages": None})]}, "ms").interval("alone", "messages") is None
    # Each system is compared with every reference.
    names = [one.name for one in each_over(["stock", "ddp", "ours"], ["stock", "ddp"], "ms")]
    assert names == ["ours_over_stock", "ours_over_ddp"]
    assert [one.name for one in each_over(["stock", "ddp"], ["stock", "ddp"], "ms")] == ["ddp_over_stock"]
    # A turn has steps for its time.
    assert count_for(1.5, 0.1, 3, 40) == 15
    assert (count_for(1.5, 10.0, 3, 40), count_for(1.5, 1e-6, 3, 40)) == (3, 40)


RANKS = (2, 4, 8, 16, 32)


@pytest.mark.parametrize(("ranks", "hops", "messages"), [(2, 1, 1), (4, 1, 3), (8, 1, 7), (32, 2, 10), (64, 2, 14)])
def test_events_take_the_hops_and_messages_of_the_page(ranks: int, hops: int, messages: int) -> None:
    """docs/coordination.md has this table."""
    assert told(ranks) == Work(hops, messages, ranks * messages)
    assert ring(ranks).hops == ring(ranks).messages == 2 * (ranks - 1)


@pytest.mark.parametrize("ranks", [*range(2, 70), 100, 511, 512, 513, 4096])
def test_after_all_phases_every_rank_has_been_told_of_all(ranks: int) -> None:
    radix = max(phases(ranks)) + 1
    count = len(phases(ranks))
    assert 8 ** (count - 1) < ranks <= 8**count and radix <= 8
    known = {0}  # by how many places before it the ranks are that rank 0 knows of
    for phase, told_of in zip(reversed(range(count)), phases(ranks), strict=True):
        known = {(one + step * radix**phase) % ranks for one, step in itertools.product(known, range(told_of + 1))}
    assert known == set(range(ranks))


def test_work_and_times_follow_closed_formulas() -> None:
    assert gathered(2) == Work(4, 4, 4)
    assert gathered(8) == Work(2 + 2 * 3, 2 * 7 + 2 * 3, 4 * 7)
    assert gathered(9).hops == gathered(16).hops == 2 + 2 * 4
    assert gathered(4096) == Work(26, 2 * 4095 + 24, 4 * 4095)
    # Times follow closed formulas.
    constants = Constants(fixed_s=1e-3, hop_s=3e-5, message_s=2e-6)
    for ranks in (2, 32, 4096):
        assert time_s(ring(ranks), constants) == pytest.approx(1e-3 + 2 * (ranks - 1) * 32e-6)
        assert time_s(ring(ranks), constants, 5e-5) == pytest.approx(1e-3 + 2 * (ranks - 1) * 82e-6)
    assert time_s(told(8), constants, 5e-5) == pytest.approx(1e-3 + 8e-5 + 7 * 2e-6)
    assert time_s(told(4096), constants) == pytest.approx(1e-3 + 4 * 3e-5 + 4 * 7 * 2e-6)
    # Two cores take half of what all ranks' messages cost, or all of what one rank's cost.
    assert time_s(ring(32), constants, cores=2) == pytest.approx(1e-3 + 62 * 3e-5 + 32 * 62 / 2 * 2e-6)
    assert handled(told(2), 2) == handled(told(2), 64) == 1 and handled(told(32), None) == 10


@pytest.mark.parametrize("way", [ring, gathered, told])
@pytest.mark.parametrize("true", [Constants(5e-4, 2e-5, 8e-6), Constants(0.0, 1e-5, 3e-6), Constants(1e-3, 0.0, 1e-5)])
def test_constants_are_found_again(way: Callable[[int], Work], true: Constants) -> None:
    points = [(way(ranks), time_s(way(ranks), true, cores=2)) for ranks in RANKS]
    found = fit(points, 2)
    assert (found.fixed_s, found.hop_s, found.message_s) == pytest.approx(
        (true.fixed_s, true.hop_s, true.message_s), abs=1e-9
    )
    assert worst_error(points, found, 2) < 1e-6
    # Less from ranks to ranks, as no constants can have it.
    odd = fit([(ring(ranks), 1e-2 / ranks) for ranks in RANKS], 2)
    assert min(odd.fixed_s, odd.hop_s, odd.message_s) == 0 and odd.fixed_s > 0
    with pytest.raises(ValueError, match="constants need coordinations"):
        fit([(ring(2), 0.0)], 2)


def test_more_ranks_follow_from_those_that_were_measured() -> None:
    constants = Constants(500e-6, 20e-6, 10e-6)
    measured_s = {ranks: 4 * time_s(ring(ranks), constants, cores=2) for ranks in RANKS}
    found = simulate(SYSTEMS["cached"], 4, measured_s, 2, 50e-6)
    assert found is not None and found.error < 0.01 and max(found.hosts_s) == 4096
    assert found.hosts_s[4096] == pytest.approx(4 * time_s(ring(4096), constants, 50e-6), rel=0.02)
    for too_little in ({2: 0.1, 4: 0.2}, {ranks: 0.1 / ranks for ranks in RANKS}):
        assert simulate(SYSTEMS["cached"], 4, too_little, 2, 0.0) is None
