"""Many random trainings, whose histories have no violations."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.support.histories import counts
from integration_tests.support.random_histories import train
from integration_tests.support.ranks import run_ranks
from paceline.history.checks.checker import check
from paceline.history.checks.results import Check

# Gradients that ranks submit in all trainings together.
SOME, CALLS, ALL = 2_000, 15_000, 100_000


@pytest.mark.parametrize(
    "calls",
    [
        SOME,
        pytest.param(CALLS, marks=[pytest.mark.more, pytest.mark.timeout(1200)]),
        pytest.param(ALL, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_random_trainings(calls: int, tmp_path: Path) -> None:
    submitted = compared = seed = 0
    exchanges = set()
    while submitted < calls:
        folder, size = tmp_path / str(seed), 2 + seed % 3
        (exchange, *_) = run_ranks(train, size, str(folder), seed)
        results = check(folder)
        assert not results.violations, f"seed {seed}, {size} ranks, {exchange}:\n" + "\n".join(
            map(str, results.violations[:20])
        )
        assert results[Check.ONCE].compared and results[Check.KEPT].compared
        submitted += sum(one["produced"] for one in counts(folder))
        compared += results.compared
        exchanges.add(exchange.partition("(")[0])
        seed += 1
    print(f"{seed} trainings, {submitted} gradients, {compared} comparisons, {sorted(exchanges)}")
    assert compared > submitted
    assert calls == SOME or len(exchanges) == 5, exchanges
