"""Trainings of compiled steps to which things happen in random order: every exchange, plans, codecs, two in turn."""

from __future__ import annotations

import pytest

from integration_tests.support.debug import debug
from integration_tests.support.keras_events import train
from integration_tests.support.random_events import updates
from integration_tests.support.ranks import ranks, run_ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
PLANNED = {**TENSORFLOW, "PACELINE_FUSION": "mgwfbp", **debug(fusion_warmup_steps=2, armed=True)}


@ranks(2, more=(3, 4), timeout_s=180, env=TENSORFLOW)
def test_weights_are_those_of_one_process(rank: int, size: int) -> None:
    for seed in range(3):
        train(rank, size, seed)


@ranks(more=(2, 3, 4), timeout_s=180, env=PLANNED)
def test_under_plans(rank: int, size: int) -> None:
    for seed in range(3, 6):
        train(rank, size, seed)


@pytest.mark.more
@pytest.mark.timeout(700)
@pytest.mark.parametrize("env", [TENSORFLOW, PLANNED], ids=["plain", "planned"])
def test_two_thousand_updates(env: dict[str, str]) -> None:
    run_ranks(updates, 2, train, 200, 2000, env=env, timeout_s=600)


@pytest.mark.soak
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("env", [TENSORFLOW, PLANNED], ids=["plain", "planned"])
@pytest.mark.parametrize("size", [3, 4])
def test_two_thousand_updates_of_more_ranks(size: int, env: dict[str, str]) -> None:
    run_ranks(updates, size, train, 100 * size, 2000, env=env, timeout_s=1800)
