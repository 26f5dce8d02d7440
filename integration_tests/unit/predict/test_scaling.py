"""Steps by the number of workers: the recorded number, growth, sizes, and the collectives that are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from integration_tests.unit.fusion.test_from_trace import A_S, B_S, COORDINATION_S, SIZES, recorded
from paceline.core import _core
from paceline.errors import UserError
from paceline.fusion import costs, from_trace
from paceline.fusion.gradient import Gradient
from paceline.predict import coordination, lateness
from paceline.predict.iteration import Iteration
from paceline.predict.recorded import RecordedIteration, of_trace
from paceline.predict.scaling import ARMED, LOCAL, PIPELINED, STOCK, Network, Scaled, Scaling, of_ring
from paceline.registry.collectives import COLLECTIVES

POWERS = [2**power for power in range(13)]
# Merging by cycles and the plans of armed steps are not the best ones, so slower messages may shorten a step a little.
NEARLY = {STOCK: 0.02, ARMED: 0.01, "split": 0.01}


def scaling() -> Scaling:
    measured = from_trace.measure(recorded(), 1e-3)
    cost = costs.fit(measured.samples)
    found = of_trace(recorded(), measured, cost)
    assert found is not None
    return Scaling(found, measured, of_ring(cost, measured.ranks), measured.coordination_s, measured.ranks)


def random_scaling(seed: int) -> Scaling:
    source = np.random.default_rng(seed)
    ready_s = np.sort(source.uniform(0, 10 ** source.uniform(-3, 0), int(source.integers(1, 40))))
    gradients = tuple(
        Gradient(f"g{at}", int(10 ** source.uniform(1, 7)), float(one)) for at, one in enumerate(ready_s - ready_s[0])
    )
    iteration = Iteration(0, source.uniform(0, 0.1), gradients[-1].ready_s, gradients, costs.linear(0, 0))
    network = Network(10 ** source.uniform(-6, -3), 10 ** source.uniform(-10, -8), source.choice([0, 1e-10]))
    measured = replace(from_trace.measure(recorded(), 1e-3), gradients=gradients)
    return Scaling(RecordedIteration(iteration, 1.0, False), measured, network, source.choice([0.0, 1e-4, 2e-3]), 3)


def steps_s(at: Scaled) -> dict[str, float]:
    return {one.name: one.step_s for one in at.settings}


@pytest.mark.parametrize("seed", range(20))
def test_more_workers_never_make_a_step_shorter(seed: int) -> None:
    model = random_scaling(seed)
    before = steps_s(model.at(1))
    assert set(before.values()) == {model.recorded.iteration.compute_s}
    for at in model.over(POWERS[1:]):
        for one in at.settings:
            assert one.step_s >= before[one.name] * (1 - NEARLY.get(one.name, 1e-12)), (one.name, at.workers)
            assert 0 < one.scaling <= 1 and one.exposed_s == pytest.approx(one.step_s - one.alone_s)
        before = steps_s(at)


def test_recorded_workers_have_the_recorded_costs() -> None:
    """Costs among the trace's ranks are those of the trace, so stock Horovod's step is what the planner predicts."""
    model = scaling()
    message = model.network.stock(model.measured.ranks)
    assert [message.a_s, message.b_s_per_byte] == pytest.approx([A_S, B_S], rel=1e-6)
    found = model.measured.gradients
    sizes, ready_s, types = [one.bytes for one in found], [one.ready_s for one in found], [one.type for one in found]
    _, stock = _core.predict_stock(sizes, ready_s, types, message, COORDINATION_S, 1e-3, 128 << 20)
    step_s = model.recorded.iteration.step_s(stock.finish_s)
    assert steps_s(model.at(model.measured.ranks))[STOCK] == pytest.approx(step_s, rel=1e-6)


def test_zero_lateness_changes_nothing_and_lateness_adds_partial_exchanges() -> None:
    model = scaling()
    for workers in (1, 2, 8):
        on_time = steps_s(model.at(workers))
        late = steps_s(replace(model, lateness=lateness.parse("normal:0,0")).at(workers))
        assert {name: late[name] for name in on_time} == pytest.approx(on_time)
        assert late["majority"] == pytest.approx(on_time[STOCK], rel=1e-2)
    late = steps_s(replace(model, lateness=lateness.parse("random:5")).at(8))
    assert late[STOCK] == pytest.approx(on_time[STOCK] + 5)
    assert late["majority"] < late[LOCAL] < late[STOCK] and late[PIPELINED] < late[STOCK]


def test_bytes_are_those_of_a_ring() -> None:
    for at in scaling().over([2, 4, 4096]):
        sent = {one.name: one.sent_bytes for one in at.settings}
        assert sent[STOCK] == pytest.approx(2 * (at.workers - 1) / at.workers * sum(SIZES))
        assert sent[LOCAL] == pytest.approx(sent[STOCK] / 8)


def test_the_fastest_collective_of_each_size() -> None:
    for workers in (2, 3, 8, 4096):
        for size in (4, 4e3, 4e6, 4e8):
            constants = (workers, size, 1e-4, 2e-5, 1e-9, 1e-10)
            times = {name: _core.allreduce_time(number, *constants) for name, (number, _) in COLLECTIVES.items()
                     if 0 <= number < 4}  # fmt: skip
            number, seconds = _core.fastest_allreduce(*constants)
            assert seconds == min(times.values())
            assert times[next(name for name, one in COLLECTIVES.items() if one[0] == number)] == seconds
        own = Network(1e-4, 1e-9).own(workers, 4e8)
        assert own(4e6) <= Network(1e-4, 1e-9).stock(workers)(4e6) * 1.05
    # A given algorithm is that of all messages.
    tree = Network(1e-4, 1e-9, 0.0, "binary-tree")
    assert tree.own(8, 4e8)(1e6) == tree.stock(8)(1e6) == pytest.approx(3 * (2e-4 + 2e-3))


def test_rounds_grow_with_the_ring_and_from_a_measured_one() -> None:
    modelled = [coordination.round_s(workers, 1e-4) for workers in (1, 2, 32)]
    assert modelled[0] == 0
    constants = coordination.CACHED
    hop_s = constants.hop_s + constants.message_s + 1e-4
    assert modelled[1:] == pytest.approx([constants.fixed_s + 2 * hop_s, constants.fixed_s + 62 * hop_s])
    assert coordination.round_s(32, 1e-4, 3e-3, 2) == pytest.approx(3e-3 * modelled[2] / modelled[1])
    assert coordination.round_s(4, 1e-4, 3e-3, 4) == pytest.approx(3e-3)


def test_what_cannot_be_predicted() -> None:
    with pytest.raises(UserError, match="There cannot be 0 workers"):
        scaling().at(0)
    with pytest.raises(UserError, match="among 1 rank has no cost"):
        of_ring(costs.linear(1e-3, 1e-8), 1)
