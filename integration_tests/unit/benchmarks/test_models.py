"""Ranks step alike before measuring until all follow their plan; waits for late ranks, in closed form."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.skew import model
from paceline.examples.benchmarks.steps import plans
from paceline.examples.benchmarks.steps.plans import Merging, Plan, Ready, WarmUp

PLAN = Plan(1, 0, (4,), 0.0, 0.0, 0.0, 1e-3, 0.0)


def ready(*states: str) -> list[Ready]:
    return [Ready(0.1, Merging(state, "", PLAN if state == "active" else None)) for state in states]


def test_ranks_step_in_batches_until_all_have_a_plan_and_are_checked_then() -> None:
    asked: list[WarmUp] = []
    told: list[str] = []
    answers = iter([ready("active", "warming"), ready("active", "active"), ready("active", "active")])

    def ask(order: WarmUp) -> list[Ready]:
        asked.append(order)
        return next(answers)

    found = plans.until_active("optimal", ready("warming", "warming"), ask, told.append)
    assert asked == [WarmUp(plans.BATCH_STEPS, check=False)] * 2 + [WarmUp(1, check=True)]
    assert all(one.merging is not None and one.merging.plan for one in found)
    assert told[-1] == "optimal warms up, 5 steps, active (rank 0), warming (rank 1)"


def test_a_system_without_plans_makes_no_step() -> None:
    assert plans.until_active("ddp", [Ready(0.1)], lambda order: pytest.fail("it was asked")) == [Ready(0.1)]


def test_a_rank_that_refuses_and_one_that_never_plans_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Rank 1 of optimal refuses to merge: no reason given"):
        plans.until_active("optimal", ready("warming", "refused"), lambda order: [])
    monkeypatch.setattr(plans, "MOST_STEPS", 10)
    with pytest.raises(UserError, match=r"does not merge by a plan after 10 steps .* warming \(rank 0, 1\)"):
        plans.until_active("optimal", ready("warming", "warming"), lambda order: ready("warming", "warming"))


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 32])
def test_the_closed_forms_are_what_every_rank_waits(ranks: int) -> None:
    def waits(trigger: int) -> float:
        return sum(max(0, trigger - rank) for rank in range(ranks)) / ranks

    assert model.expected_wait("sync", ranks) == pytest.approx(waits(ranks - 1)) == pytest.approx((ranks - 1) / 2)
    drawn = sum(map(waits, range(ranks))) / ranks
    assert model.expected_wait("random", ranks) == pytest.approx(drawn) == pytest.approx((ranks**2 - 1) / (6 * ranks))
    assert model.expected_wait("majority", ranks) == pytest.approx(waits(-(-ranks // 2) - 1))
    assert model.expected_wait("solo", ranks) == waits(0) == 0
    assert model.expected_fresh("random", ranks) == (ranks + 1) / 2


def test_a_late_rank_saves_the_transfer() -> None:
    # Of 4 ranks 2 come in time and wait 1 and 0 skews; the others take the result without the transfer of 0.4 skews.
    assert model.with_transfer([2], 4, 0.4) == pytest.approx(1 / 4 - 0.4 / 2)
    assert model.with_transfer([4, 4], 4, 0.4) == pytest.approx(1.5)
