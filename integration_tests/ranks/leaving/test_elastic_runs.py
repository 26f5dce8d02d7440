"""Elastic trainings through random joins, leaves and kills: `make test-more` runs a short one, `make soak` all."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from integration_tests.elastic.__main__ import band
from integration_tests.elastic.schedule import EVENTS, LEAST, MOST, STEPS, Change, drawn


def _run(*words: str, limit_s: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "integration_tests.elastic", *words], capture_output=True, text=True, timeout=limit_s
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.more
@pytest.mark.timeout(600)
def test_a_training_ends_in_the_band_of_undisturbed_ones() -> None:
    _run("--runs", "1", "--framework", "torch", "--exchange", "pipelined", limit_s=590)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_all_trainings_end_in_the_band_of_undisturbed_ones() -> None:
    _run("--runs", "20", limit_s=7190)


def test_every_schedule_has_all_changes_one_after_the_other() -> None:
    for seed in range(200):
        schedule = drawn(seed)
        events = schedule.events
        assert drawn(seed) == schedule
        assert len(events) == EVENTS and {event.change for event in events} == set(Change)
        steps = [event.step for event in events]
        assert steps == sorted(steps) and steps[0] > 0 and steps[-1] < STEPS
        sizes = [schedule.size, *(event.size for event in events)]
        assert all(LEAST <= size <= MOST for size in sizes)
        assert all(one != other for one, other in itertools.pairwise(sizes))
        killed = {event.name for event in events if event.change is Change.KILL}
        left = {line.partition(":")[0] for line in events[-1].hosts}
        assert not killed & left


def test_the_band_has_a_width_even_if_all_trainings_are_equal() -> None:
    low, high = band([0.95] * 4)
    assert low < 0.95 < high < 0.97
    assert band([0.9, 1.0])[0] < 0.9
