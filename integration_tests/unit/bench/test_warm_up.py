"""Warming up until every rank merges by its plan: batches, the closing check, and what ends it otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.harness import warm_up
from paceline.examples.benchmarks.harness.assignment import Ready, WarmUp
from paceline.examples.benchmarks.harness.merging import Merging, Plan, states


def merging(state: str, reason: str = "") -> Merging:
    plan = Plan(1, 0, (5, 7), 1e-3, 1e-9, 2e-3, 0.1, 0.02, 0.12) if state == "active" else None
    return Merging("mgwfbp", state, reason, plan)


def ready(*ranks: str) -> list[Ready]:
    """Ranks in these states."""
    return [Ready(0.01, merging(state)) for state in ranks]


def after(answers: list[list[Ready]], orders: list[WarmUp]) -> Callable[[WarmUp], list[Ready]]:
    """Ranks that answer one order after another, and a list of what they were ordered."""

    def ask(order: WarmUp) -> list[Ready]:
        orders.append(order)
        return answers[len(orders) - 1]

    return ask


def test_all_ranks_get_the_same_batches_until_the_last_one_is_active() -> None:
    orders: list[WarmUp] = []
    told: list[str] = []
    answers = [ready("sweeping", "warming", "sweeping"), ready("active", "planning", "active"), ready(*["active"] * 3)]
    ask = after([*answers, ready(*["active"] * 3)], orders)
    end = warm_up.until_active("mgwfbp", ready(*["warming"] * 3), ask, told.append)
    batch = WarmUp(warm_up.BATCH_STEPS, check=False)
    assert orders == [batch, batch, batch, WarmUp(1, check=True)]
    assert [one.merging.active for one in end if one.merging] == [True] * 3
    assert told[0] == "mgwfbp warms up, 0 steps, warming (rank 0, 1, 2)"
    assert told[1] == f"mgwfbp warms up, {warm_up.BATCH_STEPS} steps, sweeping (rank 0, 2), warming (rank 1)"


def test_ranks_that_are_active_at_once_are_checked_all_the_same() -> None:
    orders: list[WarmUp] = []
    warm_up.until_active("none", ready("active"), after([ready("active")], orders))
    assert orders == [WarmUp(1, check=True)]


def test_a_system_without_merging_is_asked_for_nothing() -> None:
    ranks = [Ready(0.5), Ready(0.6)]
    assert warm_up.until_active("ddp", ranks, after([], [])) == ranks


def test_a_refusal_names_rank_and_reason() -> None:
    refusing = [Ready(0.01, merging("active")), Ready(0.01, merging("refused", "HOROVOD_AUTOTUNE is on"))]
    with pytest.raises(UserError, match="Rank 1 of mgwfbp refuses to merge: HOROVOD_AUTOTUNE is on") as caught:
        warm_up.until_active("mgwfbp", ready("warming", "warming"), after([refusing], []))
    assert "--policy" in caught.value.remedy


def test_ranks_that_never_plan_end_at_the_limit_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "MOST_STEPS", 2 * warm_up.BATCH_STEPS + 1)
    orders: list[WarmUp] = []
    with pytest.raises(UserError, match=r"not merge by a plan after 15 steps in .*: measuring \(rank 0\)"):
        warm_up.until_active("optimal", ready("warming"), after([ready("measuring")] * 3, orders))
    assert len(orders) == 3


def test_ranks_that_never_plan_end_at_the_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "LIMIT_S", 0.0)
    with pytest.raises(UserError, match="not merge by a plan after 0 steps"):
        warm_up.until_active("optimal", ready("warming"), after([], []))


def test_states_are_told_once_each_with_their_reasons() -> None:
    ranks = [merging("active"), merging("measuring", "too few steps"), merging("active")]
    assert states(ranks) == "active (rank 0, 2), measuring: too few steps (rank 1)"
