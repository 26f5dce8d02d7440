"""Scripts whose ranks are not equally fast, to their end: all end with 0 and equal models, and nothing is lost."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from integration_tests.ranks.leaving.scripts import QUORUM, SCRIPTS, STEP_S, STEPS, expected, run

ENDS = ("end", "shutdown", "exit")
CASES = [
    (framework, exchange, size, slow, factor)
    for framework, exchange, size, factor in itertools.product(
        SCRIPTS, ("majority", "solo", "quorum", "pipelined", "local"), (2, 4), (1.3, 2, 5)
    )
    for slow in sorted({0, size // 2, size - 1})
    if (exchange != "quorum" or framework == "torch") and (exchange, framework) != ("local", "tape")
] + [("torch", "split", 2, 1, 2)]
NUMBERS = {case: number for number, case in enumerate(CASES)}
TESTED = [
    ("torch", "majority", 2, 1, 5),
    ("torch", "local", 2, 0, 2),
    ("torch", "pipelined", 2, 0, 2),
    ("torch", "split", 2, 1, 2),
]
MORE = [("keras", "solo", 2, 0, 2), ("tape", "majority", 2, 1, 5)]
# Every seventh case covers each framework, exchange, place and factor; all cases take half an hour.
MARKS = {
    case: pytest.mark.more if case in MORE or number % 7 == 0 else pytest.mark.soak for case, number in NUMBERS.items()
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id="-".join(map(str, case)), marks=() if case in TESTED else MARKS[case]) for case in CASES],
)
def test_rank_that_is_through_takes_part_until_all_are(tmp_path: Path, case: Any) -> None:
    framework, exchange, size, slow, factor = case
    pauses = [STEP_S * (factor if rank == slow else 1) for rank in range(size)]
    script, variables = SCRIPTS[framework], {"PACELINE_EXCHANGE": exchange, "PACELINE_SYNC_EVERY": "10"}
    if exchange == "quorum":
        script, variables = QUORUM, {}
    if exchange != "local":
        variables.pop("PACELINE_SYNC_EVERY", None)
    done, ranks = run(tmp_path, script, size, pauses, ENDS[NUMBERS[case] % len(ENDS)], **variables)
    assert done.returncode == 0, done.stderr
    assert [one.steps for one in ranks] == [STEPS] * size
    assert len({one.weights for one in ranks}) == 1, ranks
    assert ranks[0].weights == pytest.approx((expected([STEPS] * size),) * 2, rel=1e-12)


@pytest.mark.parametrize("fusion", ["threshold", "optimal"])
@pytest.mark.parametrize("end", ENDS)
def test_weights_in_flight_arrive_before_the_end(tmp_path: Path, end: str, fusion: str) -> None:
    pauses = [STEP_S] * 2
    done, ranks = run(tmp_path, SCRIPTS["torch"], 2, pauses, end, PACELINE_EXCHANGE="split", PACELINE_FUSION=fusion)
    assert done.returncode == 0, done.stderr
    assert len({one.weights for one in ranks}) == 1, ranks
    assert ranks[0].weights == pytest.approx((expected([STEPS] * 2),) * 2, rel=1e-12)


def test_ranks_with_unequally_many_steps_of_a_partial_exchange(tmp_path: Path) -> None:
    done, ranks = run(tmp_path, SCRIPTS["torch"], 3, [STEP_S] * 3, "shutdown", (30, 10, 20), PACELINE_EXCHANGE="solo")
    assert done.returncode == 0, done.stderr
    assert [one.steps for one in ranks] == [30, 10, 20]
    assert len({one.weights for one in ranks}) == 1, ranks
    assert ranks[0].weights == pytest.approx((expected((30, 10, 20)),) * 2, rel=1e-12)


@pytest.mark.parametrize("exchange", ["sync", "split"])
def test_unequally_many_synchronous_steps_are_an_error(tmp_path: Path, exchange: str) -> None:
    done, ranks = run(tmp_path, SCRIPTS["torch"], 2, [STEP_S] * 2, "end", (10, 5), PACELINE_EXCHANGE=exchange)
    assert done.returncode != 0
    assert "Horovod has been shut down" in done.stderr, done.stderr
    assert [one.steps for one in ranks] == [5, 5]
    assert len({one.weights for one in ranks}) == 1, ranks


def test_long_waits_are_reported_with_what_is_waited_for(tmp_path: Path) -> None:
    done, _ = run(tmp_path, SCRIPTS["torch"], 2, [0.001, 0.2], "shutdown", PACELINE_EXCHANGE="majority")
    assert done.returncode == 0, done.stderr
    assert "Paceline: rank 0 is through and waits for rank 1: " in done.stderr
    assert "more updates of 24, about " in done.stderr
    assert "Paceline: all ranks are through, after " in done.stderr
    assert "1 more update was made with gradients that were left. Models that were saved" in done.stderr
