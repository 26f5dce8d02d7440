"""A rank that is always late counts as much as the others, where models are averaged."""

from __future__ import annotations

import re

import pytest

from integration_tests.support.examples import printed
from integration_tests.support.ranks import run_ranks
from paceline.examples import drift_torch


def _drift(rank: int, size: int, *options: str) -> list[str]:
    return printed("drift_torch", ("--steps", "60", *options))


@pytest.mark.parametrize("exchange", ["sync", "local", "majority"])
def test_the_late_rank_counts_as_much_as_the_others(exchange: str) -> None:
    env = {"PACELINE_EXCHANGE": exchange, **({} if exchange == "sync" else {"PACELINE_SYNC_EVERY": "4"})}
    (said, *_) = run_ranks(_drift, 3, env=env)
    ((end,),) = [re.findall(r"3 ranks: (\d\.\d\d), .* mean of the data 1\.0", one) for one in said]
    assert abs(float(end) - 1) < 0.15


def test_plain_asynchronous_local_sgd_ends_near_the_fast_ranks() -> None:
    assert drift_torch.plain(2, 400) < 0.35
