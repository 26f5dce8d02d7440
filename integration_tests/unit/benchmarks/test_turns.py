"""The loop of turns, and ratios within them, with turns that are made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from paceline.examples.benchmarks.harness.ratio import Ratio, each_over, over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, compare, count_for


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


def test_turns_end_at_their_number_and_at_the_time_limit() -> None:
    wide = {"stock": taking([1.0]), "ours": taking([1.0, 2.0])}
    ratios = [over("ours", "stock", "ms")]
    assert compare(wide, "ms", ratios, Limits(60.0, 8)).complete == 8
    assert compare(wide, "ms", ratios, Limits(1e-9)).complete == 1


def test_without_ratios_the_figure_itself_settles() -> None:
    assert compare({"alone": taking([1.0, 1.01])}, "ms", (), Limits(60.0)).complete == 5
    assert not Comparison({"alone": turns([1.0, 2.0, 1.0, 2.0, 1.0])}, "ms").settled
    assert compare({"seeds": taking([1.0])}, "ms", (), Limits(60.0, 7, settles=False)).complete == 7


def test_a_ratio_is_formed_within_each_turn_over_the_slowest_reference() -> None:
    found = {"ours": turns([4.0, 8.0, 6.0]), "compute": turns([2.0, 4.0]), "communication": turns([1.0, 8.0])}
    value = Ratio("ours_over_max_of_parts", "ours", ("compute", "communication"), "ms").value(found)
    assert (value.median, value.count) == (1.5, 2), "a turn that is incomplete counts nothing"


def test_a_figure_that_a_system_does_not_count_has_no_interval() -> None:
    assert Comparison({"alone": [Turn({"ms": 1.0, "messages": None})]}, "ms").interval("alone", "messages") is None


def test_each_system_is_compared_with_every_reference() -> None:
    names = [one.name for one in each_over(["stock", "ddp", "ours"], ["stock", "ddp"], "ms")]
    assert names == ["ours_over_stock", "ours_over_ddp"]
    assert [one.name for one in each_over(["stock", "ddp"], ["stock", "ddp"], "ms")] == ["ddp_over_stock"]


def test_a_turn_has_steps_for_its_time() -> None:
    assert count_for(1.5, 0.1, 3, 40) == 15
    assert (count_for(1.5, 10.0, 3, 40), count_for(1.5, 1e-6, 3, 40)) == (3, 40)
