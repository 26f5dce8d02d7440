"""Utilisation, activations and copies of weights: what the simulation finds beside the formulas."""

from __future__ import annotations

import math

import pytest

from integration_tests.unit.stages.test_schedules import EVERY
from paceline.stages import schedules
from paceline.stages.costs import costs
from paceline.stages.delays import delays
from paceline.stages.instructions import Kind
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import Simulation, simulate, steady_steps


def steady(schedule: Schedule, **times: float) -> Simulation:
    return simulate(schedule, steady_steps(schedule), **times)


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_formulas_of_costs(name: str, stages: int, microbatches: int) -> None:
    schedule = schedules.make(name, stages, microbatches)
    expected = costs(schedule)
    for backward_s in (1.0, 2.0):
        found = steady(schedule, backward_s=backward_s)
        assert found.weight_copies == expected.weight_copies
        assert found.activations == expected.activations
        assert found.steady_utilisation() == pytest.approx([expected.utilisation] * stages)


@pytest.mark.parametrize(
    ("name", "microbatches", "share"),
    [
        *[(name, *row) for name in ("gpipe", "1f1b") for row in ((4, 0.5714), (8, 0.7273))],
        *[(name, 4, 1.0) for name in ("pipedream", "pipemare", "pipemare_eager")],
    ],
)
def test_bubble(name: str, microbatches: int, share: float) -> None:
    """papers.md 5.6, item 9; with a flush a single mini-batch has the bubble of all of them."""
    schedule = schedules.make(name, 4, microbatches)
    assert costs(schedule).utilisation == pytest.approx(share, abs=1e-4)
    if share < 1:
        assert simulate(schedule, 1).utilisation() == pytest.approx([share] * 4, abs=1e-4)
    else:
        whole = [min(simulate(schedule, steps).utilisation()) for steps in (1, 10, 100)]
        assert whole == sorted(whole) and whole[-1] > 0.98


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "2bw", "pipedream", "pipemare"])
def test_versions_and_copies_of_weights(name: str) -> None:
    """papers.md 5.6, item 8."""
    schedule = schedules.make(name, 4, 3)
    copies = {"2bw": (2,) * 4, "pipedream": tuple(math.ceil(tau) + 1 for tau, _ in delays(schedule))}
    assert steady(schedule).weight_copies == copies.get(name, (1,) * 4)
    for timed in simulate(schedule, 6).stages:
        versions = {one.instruction: one.version for one in timed}
        for one, version in versions.items():
            if name == "2bw" and one.kind is not Kind.UPDATE:
                assert version == max(0, one.minibatch - 1)
            if name in ("pipedream", "pipemare") and one.kind is Kind.BACKWARD:
                forwards = versions[one._replace(kind=Kind.FORWARD)]
                assert version == (forwards if name == "pipedream" else one.minibatch)


def test_the_slowest_stage_sets_the_pace() -> None:
    schedule = schedules.make("pipemare", 3, 4)
    shown = simulate(schedule, 40, forward_s=(1.0, 3.0, 2.0), backward_s=(2.0, 3.0, 1.0), update_s=0.0)
    assert shown.steady_utilisation() == pytest.approx([0.5, 1.0, 0.5], rel=0.02)


@pytest.mark.parametrize("stages", [2, 4])
def test_transfers_are_waited_for(stages: int) -> None:
    """The first stage has P micro-batches on their way, and each travels 2 (P - 1) times."""
    found = simulate(schedules.make("pipemare", stages, 4), 30, transfer_s=0.5).steady_utilisation()
    assert found == pytest.approx([2 / (2 + 2 * 0.5 * (stages - 1) / stages)] * stages, rel=1e-3)


@pytest.mark.parametrize("stages", range(2, 7))
@pytest.mark.parametrize("transfer_s", [0.5, 1.5])
def test_eager_stages_hide_transfers_of_half_a_forward_and_a_backward_pass(stages: int, transfer_s: float) -> None:
    schedule = schedules.make("pipemare_eager", stages, 4)
    assert steady(schedule, backward_s=2.0, transfer_s=transfer_s).steady_utilisation() == pytest.approx([1.0] * stages)
    longer = steady(schedule, backward_s=2.0, transfer_s=transfer_s + 1.2)
    assert max(longer.steady_utilisation()) < 0.99


@pytest.mark.parametrize("microbatches", range(1, 10))
def test_2bw_has_bubbles_only_with_few_microbatches_and_never_more_than_gpipe(microbatches: int) -> None:
    for stages in range(2, 9):
        share = costs(schedules.make("2bw", stages, microbatches)).utilisation
        assert share == pytest.approx(1 / math.ceil(stages / (microbatches + 1)))
        assert (share == 1) == (microbatches >= stages - 1)
        assert share >= costs(schedules.make("gpipe", stages, microbatches)).utilisation


def test_updates_take_their_time() -> None:
    shown = simulate(schedules.make("gpipe", 1, 2), 2, forward_s=1.0, backward_s=2.0, update_s=4.0)
    assert [(one.start_s, one.end_s) for one in shown.stages[0][:5]] == [(0, 1), (1, 2), (2, 4), (4, 6), (6, 10)]
    assert shown.end_s == 20
    assert shown.utilisation() == (1.0,)


def test_too_few_steps_and_times_are_refused() -> None:
    schedule = schedules.make("pipemare", 3, 1)
    with pytest.raises(ValueError, match=f"give {steady_steps(schedule)}"):
        simulate(schedule, steady_steps(schedule) - 1).steady_utilisation()
    with pytest.raises(ValueError, match="2 times for 3 stages"):
        simulate(schedule, 1, forward_s=(1.0, 2.0))
