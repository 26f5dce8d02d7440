"""What the driver of merging does when a plan does not arrive, is lost, or cannot be made."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.unit.fusion.test_driver import Run, measured
from paceline.fusion.bridge import ControlOp
from paceline.fusion.driver import DISAGREEMENT_LOOKS, MOST_FITS, OFFER_STEPS, State

ALIKE = measured(samples=[(4096.0, 1.0)] * 2)


@pytest.mark.parametrize("state", [State.ACTIVE, State.WATCHING])
def test_plan_that_is_gone_is_made_anew(state: State) -> None:
    run = Run().to(state)
    # The ranks disagreed and agreed again between two looks: the library follows no plan any more.
    assert run.look(version=0) is State.AGREEING
    run.to(State.ACTIVE)
    assert run.status.version == 2
    assert len(run.lines) == 2


def test_plan_that_never_comes_into_force_is_given_up() -> None:
    run = Run().to(State.OFFERING)
    assert run.looks(OFFER_STEPS - 1, 1) == "OFFERING AGREEING"
    run.to(State.ACTIVE)
    assert run.calls().count(ControlOp.PLAN) == 2


def test_costs_that_cannot_be_fitted_are_measured_again_until_that_is_a_refusal() -> None:
    run = Run()
    for agreements in (1, 2):
        run.to(State.MEASURING)
        for _ in range(MOST_FITS - 1):
            run.bridge.answer = ALIKE
            assert run.looks(0, 100) == "SWEEPING MEASURING"
        if agreements == 1:
            run.look(agreed=False)
            run.look(agreed=True)
    assert run.lines == []
    run.bridge.answer = measured()
    assert run.look() is State.OFFERING
    assert run.calls().count(ControlOp.SWEEP) == 2 * MOST_FITS and len(run.lines) == 1
    run = Run().to(State.REFUSED, ALIKE)
    assert run.calls().count(ControlOp.MEASURE) == MOST_FITS
    assert "No cost can be fitted" in run.driver.reason


def test_nothing_is_said_of_ranks_that_nobody_has_heard() -> None:
    run = Run(agreed=False)
    run.looks(*[1] * 2 * DISAGREEMENT_LOOKS)
    assert run.lines == []
    run.bridge.digests = [1, None]
    run.look(1)
    assert len(run.lines) == 1


def failing_later(gradients: Any, costs: Any) -> list[list[str]]:
    """Plans once."""
    failing_later.calls += 1  # type: ignore[attr-defined]
    if failing_later.calls > 1:  # type: ignore[attr-defined]
        raise KeyError("conv7.weight")
    return [[gradient.name for gradient in gradients]]


def test_every_message_is_one_line_and_said_once() -> None:
    failing_later.calls = 0  # type: ignore[attr-defined]
    run = Run(failing_later).to(State.ACTIVE)
    assert "4 gradients in 1 message," in run.lines[0]
    for _ in range(5):
        run.to(State.WATCHING)
        run.look()
    assert failing_later.calls == 6  # type: ignore[attr-defined]
    assert len(run.lines) == 2
    assert "conv7.weight" in run.lines[1] and run.lines[1].endswith("The last plan stays.")
    refused = Run(failing_later).to(State.REFUSED)
    assert refused.lines[0].endswith("Horovod's own merging is used.")
    assert not any("\n" in line for line in run.lines + refused.lines)


def test_small_process_sets_without_a_buffer_merge_nothing() -> None:
    run = Run(process_set=1, threshold_bytes=0).to(State.OFFERING)
    planned = [group for group in run.group_of() if group >= 0]
    assert len(planned) == len(set(planned)) == 4
