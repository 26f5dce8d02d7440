"""Seconds per iteration under D-Sync, PS-Sync and Pipe-SGD, and the remedy that `paceline plan` recommends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from integration_tests.unit.fusion.test_from_trace import A_S, B_S, COORDINATION_S, READY_S, SIZES, recorded
from paceline.errors import UserError
from paceline.examples.reproduction.pipe_sgd import ALEXNET_BYTES, ALPHA_S, BETA_S, GAMMA_S, WORKERS, alexnet, ring
from paceline.fusion import CostModel, Gradient, costs, from_trace
from paceline.fusion.planning import make_plan
from paceline.fusion.resolve import resolve
from paceline.predict import collectives
from paceline.predict.iteration import (
    LAYER_WISE,
    POLICIES,
    SEQUENTIAL,
    Iteration,
    communication_s,
    of_layers,
    pipelined_s,
    pipelined_unlimited_s,
    synchronous_s,
)
from paceline.predict.parameter_server import parameter_server_costs
from paceline.predict.recorded import of_trace
from paceline.predict.remedies import (
    Remedy,
    among,
    best,
    by_pace,
    half_of,
    on_the_wire,
    remedies,
    split_s,
    waits_for_others_s,
)
from paceline.record.trace import Step, Trace
from paceline.registry.policies import OPTIMAL


def layers(compute_s: float, cost: CostModel, count: int = 10, layer_bytes: int = 1_000_000) -> Iteration:
    """A tenth of the computation is the update, three tenths the forward pass."""
    return of_layers(0.1 * compute_s, 0.3 * compute_s, 0.6 * compute_s, [layer_bytes] * count, cost)


def test_pipelining_alone_gains_at_most_two() -> None:
    gains = {}
    for share in (0.01, 0.5, 0.99, 1.0, 1.01, 2.0, 100.0):
        iteration = layers(1.0, CostModel.linear(0.0, share / 10e6))
        assert communication_s(iteration) == pytest.approx(share)
        gains[share] = synchronous_s(iteration) / pipelined_s(iteration)
        assert gains[share] == pytest.approx((1 + share) / max(1, share))
    assert max(gains.values()) == gains[1.0] == pytest.approx(2)
    assert [share for share, gain in gains.items() if gain > 1.999] == [1.0]


@pytest.mark.parametrize("share", [0.2, 1.0, 5.0])
def test_more_than_two_gains_nothing_but_with_unlimited_resources(share: float) -> None:
    iteration = layers(1.0, CostModel.linear(0.0, share / 10e6))
    for policy in POLICIES:
        assert pipelined_s(iteration, policy, k=1) == synchronous_s(iteration, policy)
        assert len({pipelined_s(iteration, policy, k) for k in range(2, 65)}) == 1
    for k in (1, 2, 3, 64):
        unlimited_s = pipelined_unlimited_s(iteration, k=k)
        assert unlimited_s == pytest.approx(synchronous_s(iteration) / k)
        assert unlimited_s <= pipelined_s(iteration, k=k) * (1 + 1e-12)
    if share == 1.0:  # two resources are enough
        assert pipelined_unlimited_s(iteration, k=2) == pytest.approx(pipelined_s(iteration))


def test_every_message_pays_the_start_up_and_types_are_sent_apart() -> None:
    """L (2 (p - 1) alpha + S) in place of 2 (p - 1) alpha + S, with the same transfer."""
    overhead_s, count = 3e-4, 10
    iteration = layers(1.0, ring(overhead_s=overhead_s), count)
    start_up_s = 2 * (WORKERS - 1) * ALPHA_S + overhead_s
    transfer_s = count * 1e6 * (WORKERS - 1) / WORKERS * (2 * BETA_S + GAMMA_S)
    assert communication_s(iteration, SEQUENTIAL) == pytest.approx(start_up_s + transfer_s)
    assert communication_s(iteration, LAYER_WISE) == pytest.approx(count * start_up_s + transfer_s)
    # Tensors of different types are sent separately.
    gradients = (Gradient("a", 100, 0.5), Gradient("b", 100, 1.0, "float16", 1))
    iteration = Iteration(0.0, 0.0, 1.0, gradients, CostModel.linear(3.0, 0.0))
    assert communication_s(iteration, SEQUENTIAL) == 6.0


def test_synchronous_training_overlaps_layers_and_pipelined_prefers_one_message() -> None:
    cheap = layers(1.0, CostModel.linear(1e-6, 5e-8))  # 0.05 s for each layer's message, 0.06 s for its backward pass
    assert synchronous_s(cheap, LAYER_WISE) == pytest.approx(1.0 + 0.05, abs=1e-5)
    assert synchronous_s(cheap, SEQUENTIAL) == pytest.approx(1.0 + 0.5, abs=1e-5)
    dear = layers(1.0, CostModel.linear(0.2, 5e-8))
    assert synchronous_s(dear, LAYER_WISE) > synchronous_s(dear, SEQUENTIAL)
    for iteration in (cheap, dear):
        assert pipelined_s(iteration, SEQUENTIAL) <= pipelined_s(iteration, LAYER_WISE)
        assert synchronous_s(iteration, OPTIMAL) <= min(synchronous_s(iteration, policy) for policy in POLICIES)
    assert pipelined_s(cheap, SEQUENTIAL) == pipelined_s(cheap, LAYER_WISE) == pytest.approx(1.0)
    assert pipelined_s(dear, LAYER_WISE) == pytest.approx(2.5)


def test_all_collectives_are_compared_on_one_network() -> None:
    """papers.md 2.3: n beta terms of a ring and a server, start-ups of layers, and what an iteration makes of them."""
    iteration = layers(0.1, ring(), count=5)
    found = {one.name: one for one in collectives.compare(iteration, WORKERS, ALPHA_S, BETA_S, GAMMA_S, 1e-3)}
    assert list(found) == [*costs.ALGORITHMS, collectives.PARAMETER_SERVER]
    size = 5_000_000
    sequential_s = {
        "ring": 6 * ALPHA_S + 0.75 * size * (2 * BETA_S + GAMMA_S),
        "recursive-doubling": 2 * (ALPHA_S + size * (BETA_S + GAMMA_S)),
        collectives.PARAMETER_SERVER: 2 * ALPHA_S + 4 * size * (2 * BETA_S + GAMMA_S),
    }
    for name, time_s in sequential_s.items():
        one = found[name]
        assert one.communication_s["single"] == pytest.approx(time_s + 1e-3)
        assert one.synchronous_s["single"] == pytest.approx(0.1 + time_s + 1e-3)
        assert one.pipelined_s["single"] == max(iteration.compute_s, one.communication_s["single"])
        assert one.unlimited_s == pytest.approx((0.1 + time_s + 1e-3) / 2)
        assert one.communication_s["none"] > one.communication_s["single"] + 4e-3 - 1e-9
    assert found["ring"].synchronous_s["none"] < found["ring"].synchronous_s["single"]


def test_parameter_server_is_slower_with_every_worker() -> None:
    for workers in (1, 2, 4, 8, 16):
        server = parameter_server_costs(workers, ALPHA_S, BETA_S, GAMMA_S)
        own_s = 2 * ALPHA_S + workers * ALEXNET_BYTES * (2 * BETA_S + GAMMA_S)
        assert communication_s(alexnet(server)) == pytest.approx(own_s)
        assert synchronous_s(alexnet(server)) > synchronous_s(alexnet(ring(workers)))


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda: of_layers(-1.0, 0.0, 1.0, [4], ring()), "l_up_s cannot be -1"),
        (lambda: of_layers(0.0, math.nan, 1.0, [4], ring()), "l_for_s cannot be nan"),
        (lambda: of_layers(0.0, 0.0, 1.0, [], ring()), "no gradient"),
        (lambda: of_layers(0.0, 0.0, 1.0, [4, -4], ring()), "layer 2 has -4 bytes"),
        (lambda: Iteration(0.0, 0.0, 1.0, (Gradient("w", 4, 1.5),), ring()), "w is ready at 1.5 s of a backward pass"),
        (lambda: pipelined_s(alexnet(), k=0), "k=0"),
        (lambda: pipelined_unlimited_s(alexnet(), k=0), "k=0"),
        (lambda: synchronous_s(alexnet(), "optimel"), "'optimel'"),
        (lambda: communication_s(alexnet(), "threshold"), "'threshold'"),
        (lambda: parameter_server_costs(0, 1.0, 1.0), "0 workers"),
        (lambda: parameter_server_costs(2, math.nan, 1.0), "nan"),
        (lambda: parameter_server_costs(2, 1.0, -1.0, 9.0), "-1"),
        (lambda: ring(0), "at least one"),
    ],
)
def test_what_is_refused(call: Callable[[], object], phrase: str) -> None:
    with pytest.raises(UserError) as raised:
        call()
    assert phrase in str(raised.value)
    assert raised.value.remedy


def test_recorded_step_is_computation_and_what_is_exposed() -> None:
    whole = recorded()
    measured = from_trace.measure(whole, 1e-3)
    found = of_trace(whole, measured, CostModel.linear(A_S, B_S).plus(COORDINATION_S))
    assert found is not None
    assert not found.overlaps
    assert found.step_s == pytest.approx(1.0)
    iteration = found.iteration
    assert iteration.l_back_s == pytest.approx(READY_S[-1])
    # The trace was made with every tensor alone; the last message is not hidden.
    assert iteration.compute_s == pytest.approx(1.0 - (A_S + B_S * SIZES[-1] + COORDINATION_S))
    assert synchronous_s(iteration, LAYER_WISE) == pytest.approx(found.step_s)
    assert pipelined_s(iteration) == iteration.compute_s
    # Steps whose messages outlast them count as computation.
    whole = recorded()
    measured = replace(from_trace.measure(whole, 1e-3), finish_s=1.5)
    found = of_trace(whole, measured, CostModel.linear(A_S, B_S))
    assert found is not None
    assert found.overlaps
    assert found.iteration.compute_s == found.step_s == pytest.approx(1.0)


@pytest.mark.parametrize(("kept", "step_s"), [(slice(0, 2), 1.0), (slice(None, None, 2), None)])
def test_a_step_has_a_time_if_the_next_one_was_recorded(kept: slice, step_s: float | None) -> None:
    whole = recorded()
    ranks = tuple(structs.replace(one, steps=one.steps[kept]) for one in whole.ranks)
    some = Trace(whole.size, ranks)
    found = of_trace(some, from_trace.measure(some, 1e-3), CostModel.linear(A_S, B_S))
    assert (None if found is None else round(found.step_s, 9)) == step_s


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

    found = by_pace(remedies(iteration, 4, costs, finish_of, late_s, armed))
    assert found[0].flags == "" and all(one.pace >= other.pace for one, other in itertools.pairwise(found[1:]))
    return {one.flags: one for one in found}


def _recommended(found: dict[str, Remedy]) -> str:
    return best(list(found.values())).flags


@pytest.mark.parametrize(
    ("costs", "options", "flags"),
    [
        ((1e-5, 1e-11), {}, ""),
        ((2e-3, 2e-9), {}, "--fusion optimal"),
        ((1e-3, 0.09 / 2e6), {}, "--exchange pipelined"),
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


def test_fewer_bytes_where_communication_takes_much_longer_and_armed_plans() -> None:
    """The case that the plan had no answer to: 2 MB take 0.6 s, a step of 0.1 s."""
    found = _found(CostModel.linear(1e-3, 0.6 / 2e6))
    (encoded,) = (one for flags, one in found.items() if flags.startswith("--codec q8"))
    assert encoded.pace > 2 * found[""].pace
    assert found["--exchange pipelined --codec q8"].step_s == pytest.approx(0.6 * 260 / 1024, rel=0.02)
    assert found["--exchange local"].step_s == pytest.approx(0.1 + 0.6 / 8, rel=0.02)
    assert found["-np 1"].pace == pytest.approx(10.0)
    everything = {flags: one for flags, one in found.items() if "codec" not in flags}
    assert _recommended(everything) == "--exchange local"
    assert "pipelined" in _recommended(found) and "q8" in _recommended(found)
    # Armed plans have their flag, but for the policy that brings them along.
    armed = _found(CostModel.linear(5e-3, 1e-9), layers=60, armed=True)
    assert {"--fusion optimal", "--fusion mgwfbp --debug armed=yes"} <= set(armed)


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
            arrivals = (structs.replace(arrival, time_s=start_s + own_s),)
            steps.append(
                Step(n, start_s, arrivals, (structs.replace(collective, start_s=start_s + own_s, end_s=end_s),), 1)
            )
        ranks.append(structs.replace(first, rank=rank, steps=tuple(steps)))
    return structs.replace(plain, ranks=tuple(ranks))


def test_waits_are_for_ranks_that_are_late_now_and_then_and_costs_of_fewer_ranks() -> None:
    always = _trace([[1.0] * 12, [2.0] * 12])
    assert waits_for_others_s(always) == pytest.approx(0.0, abs=1e-9)
    in_turn = _trace([[1.0, 2.0] * 6, [2.0, 1.0] * 6])
    assert waits_for_others_s(in_turn) == pytest.approx(0.5, abs=0.07)  # 2, less 1.5; an odd number of steps counts
    alone = _trace([[1.0] * 12])
    assert waits_for_others_s(alone) == 0.0
    # Costs of fewer bytes and ranks.
    line = CostModel.linear(6e-3, 3e-8)
    assert on_the_wire(line, 0.25)(4e6) == pytest.approx(line(1e6))
    assert among(line, 4, 2)(0) == pytest.approx(2e-3)
    assert among(line, 4, 2)(1e6) == pytest.approx(2e-3 + 2e-2)
    curve = CostModel.measured([(1e3, 1e-3), (1e6, 1e-1)])
    assert on_the_wire(curve, 0.5)(2e6) == pytest.approx(1e-1)


def test_split_scatters_under_the_backward_pass_and_gathers_under_the_forward_pass() -> None:
    halves = half_of(CostModel.linear(4e-3, 3e-8))
    assert halves.a_s == 2e-3 and halves.b_s_per_byte == 1.5e-8
    iteration = of_layers(0.01, 0.2, 0.3, [1_000_000] * 4, CostModel.linear(1e-3, 0.0))
    assert split_s(iteration, CostModel.linear(0.0, 0.0), 0.0, 4) == pytest.approx(0.51)
    # One round, which begins with the first layer's gradient; then 4 MB each way.
    assert split_s(iteration, CostModel.linear(0.0, 0.0), 0.5, 4) == pytest.approx(0.01 + (0.075 + 0.5) + 0.2)
    slow = split_s(iteration, CostModel.linear(0.0, 1e-7), 0.0, 4)
    assert slow == pytest.approx(0.01 + (0.075 + 0.4) + 0.4)
    # The forward pass waits for the first weights.
    assert split_s(iteration, CostModel.linear(0.1, 0.0), 0.0, 4) >= 0.01 + 0.3 + 0.1 + (0.1 + 0.2)
