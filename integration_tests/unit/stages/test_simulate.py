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


@pytest.mark.parametrize(("microbatches", "expected"), [(4, 0.5714), (8, 0.7273)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble(name: str, microbatches: int, expected: float) -> None:
    """papers.md 5.6, item 9; a single mini-batch has the bubble of all of them."""
    schedule = schedules.make(name, 4, microbatches)
    assert steady(schedule).steady_utilisation() == pytest.approx([expected] * 4, abs=1e-4)
    assert simulate(schedule, 1).utilisation() == pytest.approx([expected] * 4, abs=1e-4)


@pytest.mark.parametrize("name", ["pipedream", "pipemare", "pipemare_eager"])
def test_no_bubble_without_a_flush(name: str) -> None:
    assert min(steady(schedules.make(name, 4, 4)).steady_utilisation()) > 0.95
    whole = [min(simulate(schedules.make(name, 4, 4), steps).utilisation()) for steps in (1, 10, 100)]
    assert whole == sorted(whole)
    assert whole[-1] > 0.98


def test_without_a_flush_is_1_75_times_gpipe() -> None:
    ends_s = {name: steady(schedules.make(name, 4, 4)).steady_utilisation()[0] for name in ("gpipe", "pipemare")}
    assert ends_s["pipemare"] / ends_s["gpipe"] == pytest.approx(1.75)


@pytest.mark.parametrize("microbatches", range(1, 10))
def test_copies_of_weights(microbatches: int) -> None:
    """papers.md 5.6, item 8."""
    pipedream = schedules.make("pipedream", 6, microbatches)
    assert steady(pipedream).weight_copies == tuple(math.ceil(tau) + 1 for tau, _ in delays(pipedream))
    for name, copies in (("gpipe", 1), ("1f1b", 1), ("pipemare", 1), ("2bw", 2)):
        assert steady(schedules.make(name, 6, microbatches)).weight_copies == (copies,) * 6


def test_versions_of_2bw_are_the_same_on_all_stages() -> None:
    shown = simulate(schedules.make("2bw", 4, 3), 6)
    for timed in shown.stages:
        for one in timed:
            if one.instruction.kind is not Kind.UPDATE:
                assert one.version == max(0, one.instruction.minibatch - 1)


def test_pipedream_has_the_same_version_in_both_passes_and_pipemare_the_newest_in_the_backward_pass() -> None:
    for name in ("pipedream", "pipemare"):
        shown = simulate(schedules.make(name, 4, 2), 6)
        for timed in shown.stages:
            versions = {(one.instruction, one.instruction.kind): one.version for one in timed}
            for (instruction, kind), version in versions.items():
                if kind is not Kind.BACKWARD:
                    continue
                forwards = next(
                    one.version
                    for one in timed
                    if one.instruction.kind is Kind.FORWARD
                    and (one.instruction.minibatch, one.instruction.microbatch)
                    == (instruction.minibatch, instruction.microbatch)
                )
                assert version == (forwards if name == "pipedream" else instruction.minibatch)


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
