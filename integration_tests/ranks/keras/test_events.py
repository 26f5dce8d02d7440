"""Trainings of compiled steps to which things happen in random order: every exchange, plans, codecs, two in turn."""

from __future__ import annotations

import pytest

from integration_tests.support.keras_events import train
from integration_tests.support.random_events import updates
from integration_tests.support.ranks import ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
PLANNED = {
    **TENSORFLOW, "PACELINE_FUSION": "mgwfbp", "PACELINE_FUSION_WARMUP_STEPS": "2", "PACELINE_ARMED": "yes",
}  # fmt: skip


@ranks(2, more=(3, 4), timeout_s=180, env=TENSORFLOW)
def test_weights_are_those_of_one_process(rank: int, size: int) -> None:
    for seed in range(3):
        train(rank, size, seed)


@ranks(3, more=(2, 4), timeout_s=180, env=PLANNED)
def test_under_plans(rank: int, size: int) -> None:
    for seed in range(3, 6):
        train(rank, size, seed)


@pytest.mark.soak
@pytest.mark.timeout(1900)
@ranks(2, 3, timeout_s=1800, env=TENSORFLOW)
def test_two_thousand_updates(rank: int, size: int) -> None:
    updates(train, rank, size, 100 * size, 2000)


@pytest.mark.soak
@pytest.mark.timeout(1900)
@ranks(2, 4, timeout_s=1800, env=PLANNED)
def test_two_thousand_updates_under_plans(rank: int, size: int) -> None:
    updates(train, rank, size, 500 + 100 * size, 2000)
