"""`paceline plan` recommends each remedy where it is the one that helps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from integration_tests.unit.fusion.test_from_trace import recorded
from paceline.core._core import CostModel
from paceline.fusion.gradient import Gradient
from paceline.fusion.planning import make_plan
from paceline.fusion.resolve import resolve
from paceline.predict.iteration import Iteration
from paceline.predict.remedies import Remedy, among, best, on_the_wire, remedies, waits_for_others_s
from paceline.record.trace import Step, Trace
from paceline.registry.policies import OPTIMAL


def _found(
    costs: CostModel, *, layers: int = 20, layer_bytes: int = 100_000, late_s: float = 0.0, armed: bool = False
) -> dict[str, Remedy]:
    """For a step of 100 ms, half of it the backward pass, on 4 ranks with rounds of 1 ms; by flags."""
    gradients = tuple(Gradient(f"layer {n}", layer_bytes, 0.05 * ((n + 1) / layers)) for n in range(layers))
    iteration = Iteration(0.0, 0.05, 0.05, gradients, costs.plus(1e-3))

    def finish_of(of: CostModel, arms: bool) -> Mapping[str, float]:
        plan = make_plan(
            resolve(OPTIMAL), gradients, of, coordination_s=1e-3, cycle_s=1e-3, threshold_bytes=1 << 27, armed=arms
        )
        return {name: one.finish_s for name, one in plan.predicted.items()}

    found = remedies(iteration, 4, costs, finish_of, late_s, armed)
    assert found[0].flags == "" and all(one.pace >= other.pace for one, other in itertools.pairwise(found[1:]))
    return {one.flags: one for one in found}


def _recommended(found: dict[str, Remedy]) -> str:
    return best(list(found.values())).flags


@pytest.mark.parametrize(
    ("costs", "options", "flags"),
    [
        ((1e-5, 1e-11), {}, ""),
        ((2e-3, 2e-9), {}, "--fusion optimal"),
        ((1e-3, 0.09 / 2e6), {}, "--exchange pipelined --fusion single"),
        ((1.0, 4e-5), {}, "-np 1"),
        ((1e-5, 1e-11), {"late_s": 0.03}, "--exchange majority"),
    ],
    ids=["fast", "long start-ups", "as long as computing", "hopeless", "late ranks"],
)
def test_the_remedy_that_helps_is_recommended(costs: tuple[float, float], options: dict[str, Any], flags: str) -> None:
    found = _found(CostModel.linear(*costs), **options)
    assert _recommended(found) == flags
    assert not found["--fusion optimal"].price
    assert ("--exchange majority" in found) == bool(options)
    if "pipelined" in flags:
        assert found[flags].step_s == pytest.approx(0.1)


def test_armed_plans_have_their_flag() -> None:
    assert "--fusion optimal --armed" in _found(CostModel.linear(5e-3, 1e-9), layers=60, armed=True)


def test_fewer_bytes_where_communication_takes_much_longer() -> None:
    """The case that the plan had no answer to: 2 MB take 0.6 s, a step of 0.1 s."""
    found = _found(CostModel.linear(1e-3, 0.6 / 2e6))
    (encoded,) = (one for flags, one in found.items() if flags.startswith("--codec q8"))
    assert encoded.pace > 2 * found[""].pace
    assert found["--exchange pipelined --fusion single --codec q8"].step_s == pytest.approx(0.6 * 260 / 1024, rel=0.02)
    assert found["--exchange local"].step_s == pytest.approx(0.1 + 0.6 / 8, rel=0.02)
    assert found["-np 1"].pace == pytest.approx(10.0)
    everything = {flags: one for flags, one in found.items() if "codec" not in flags}
    assert _recommended(everything) == "--exchange local"
    assert "pipelined" in _recommended(found) and "q8" in _recommended(found)


def _trace(computing_s: list[list[float]]) -> Trace:
    """By rank and step; all wait for the slowest, and a message takes nothing."""
    plain = recorded()
    first = plain.ranks[0]
    arrival, collective = first.steps[0].arrivals[0], first.steps[0].collectives[0]
    starts_s = [0.0, *itertools.accumulate(map(max, zip(*computing_s, strict=True)))]
    ranks = []
    for rank, own in enumerate(computing_s):
        steps = []
        for n, (start_s, own_s, end_s) in enumerate(zip(starts_s, own, starts_s[1:], strict=False)):
            arrivals = (replace(arrival, time_s=start_s + own_s),)
            steps.append(Step(n, start_s, arrivals, (replace(collective, start_s=start_s + own_s, end_s=end_s),), 1))
        ranks.append(replace(first, rank=rank, steps=tuple(steps)))
    return replace(plain, ranks=tuple(ranks))


def test_waits_are_for_ranks_that_are_late_now_and_then() -> None:
    always = _trace([[1.0] * 12, [2.0] * 12])
    assert waits_for_others_s(always) == pytest.approx(0.0, abs=1e-9)
    in_turn = _trace([[1.0, 2.0] * 6, [2.0, 1.0] * 6])
    assert waits_for_others_s(in_turn) == pytest.approx(0.5, abs=0.07)  # 2, less 1.5; an odd number of steps counts
    alone = _trace([[1.0] * 12])
    assert waits_for_others_s(alone) == 0.0


def test_costs_of_fewer_bytes_and_ranks() -> None:
    line = CostModel.linear(6e-3, 3e-8)
    assert on_the_wire(line, 0.25)(4e6) == pytest.approx(line(1e6))
    assert among(line, 4, 2)(0) == pytest.approx(2e-3)
    assert among(line, 4, 2)(1e6) == pytest.approx(2e-3 + 2e-2)
    curve = CostModel.measured([(1e3, 1e-3), (1e6, 1e-1)])
    assert on_the_wire(curve, 0.5)(2e6) == pytest.approx(1e-1)
