"""Delays, counted in schedules: the papers' tables, and formulas for all P and N."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from integration_tests.unit.stages.test_schedules import EVERY
from paceline.stages import corrections, schedules
from paceline.stages.delays import delays, most_late, paper_delays
from paceline.stages.schedules.pipedream import PipeDream
from paceline.stages.schedules.pipemare import PipeMare


def slots_ahead(stages: int, stage: int) -> int:
    """2(P-i)+1 for i = stage + 1: as PipeMare's paper counts, a forward and a backward pass in each slot."""
    return 2 * (stages - (stage + 1)) + 1


class PapersPipeMare(PipeMare):
    def ahead(self, stage: int) -> int:
        return slots_ahead(self.stages, stage)


class PapersPipeDream(PipeDream):
    def ahead(self, stage: int) -> int:
        return slots_ahead(self.stages, stage)


@pytest.mark.parametrize(
    ("microbatches", "expected"), [(4, [1.75, 1.25, 0.75, 0.25]), (8, [0.875, 0.625, 0.375, 0.125])]
)
def test_papers_delays(microbatches: int, expected: list[float]) -> None:
    """papers.md 5.6, item 1."""
    taus = paper_delays(4, microbatches)
    assert taus == expected
    assert [here - there for here, there in pairwise(taus)] == [2 / microbatches] * 3


@pytest.mark.parametrize("stages", range(1, 7))
@pytest.mark.parametrize("microbatches", range(1, 10))
def test_papers_delays_are_those_of_the_papers_hardware(stages: int, microbatches: int) -> None:
    papers = pytest.approx(paper_delays(stages, microbatches))
    taus = delays(PapersPipeMare(stages, microbatches))
    assert [forward for forward, _ in taus] == papers
    assert [backward for _, backward in taus] == [0] * stages
    taus = delays(PapersPipeDream(stages, microbatches))
    assert [forward for forward, _ in taus] == papers
    assert [backward for _, backward in taus] == papers


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_delays_of_one_pass_at_a_time(name: str, stages: int, microbatches: int) -> None:
    taus = delays(schedules.make(name, stages, microbatches))
    late = [(stages - 1 - stage) / microbatches for stage in range(stages)]
    twice = [2 * tau for tau in late]
    by_one = [1.0 if stages > 1 else 0.0] * stages
    forward = {"pipedream": late, "pipemare": late, "pipemare_eager": twice, "2bw": by_one}.get(name, [0] * stages)
    backward = {"pipedream": late, "2bw": by_one}.get(name, [0] * stages)
    assert [tau for tau, _ in taus] == pytest.approx(forward)
    assert [tau for _, tau in taus] == pytest.approx(backward)


@pytest.mark.parametrize("stages", range(1, 7))
def test_with_enough_microbatches_no_weight_is_more_than_a_version_old(stages: int) -> None:
    enough = corrections.least_microbatches(stages)
    assert enough == 2 * stages - 1
    assert max(most_late(PapersPipeMare(stages, enough))) == 1
    if enough > 1:
        assert max(most_late(PapersPipeMare(stages, enough - 1))) == 2
    one_at_a_time = max(stages - 1, 1)
    assert max(most_late(schedules.make("pipemare", stages, one_at_a_time))) == min(1, stages - 1)
    schedule = schedules.make("pipemare", stages, 2)  # the mean, rounded up
    assert most_late(schedule) == [math.ceil(tau) for tau, _ in delays(schedule)]
