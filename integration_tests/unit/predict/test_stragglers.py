"""Simulated steps with late ranks: closed forms of eager-SGD, properties of random lateness, and its sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.skew.model import SYNC, expected_fresh, expected_wait
from paceline.partial.settings import MAJORITY, RANDOM, SOLO, Partial
from paceline.predict import lateness, stragglers
from paceline.predict.stragglers import Seconds

SEEDS = range(30)


def random_lateness(seed: int) -> Seconds:
    source = np.random.default_rng(seed)
    return source.exponential(source.uniform(0, 0.2), (int(source.integers(1, 40)), int(source.integers(1, 12))))


def skewed(ranks: int) -> Seconds:
    """Rank r is r seconds late: the micro-benchmark of eager-SGD, section 7.1."""
    return np.arange(float(ranks))[np.newaxis]


@pytest.mark.parametrize("ranks", [1, 2, 7, 8, 32])
@pytest.mark.parametrize("system", [SYNC, MAJORITY, SOLO])
def test_waits_of_one_round_are_the_closed_forms(system: str, ranks: int) -> None:
    settings = Partial(ranks if system == SYNC else system)
    found = stragglers.partial(skewed(ranks), 100.0, 0.0, settings, rounds=1)
    assert found.in_time == expected_fresh(system, ranks)
    assert found.wait_s * found.in_time / ranks == pytest.approx(expected_wait(system, ranks))


def test_drawn_initiators_wait_as_the_papers_majority() -> None:
    found = [stragglers.partial(skewed(8), 100.0, 0.0, Partial(RANDOM), seed, rounds=1) for seed in range(2000)]
    assert np.mean([one.wait_s * one.in_time / 8 for one in found]) == pytest.approx(expected_wait(RANDOM, 8), rel=0.06)
    assert np.mean([one.in_time for one in found]) == pytest.approx(expected_fresh(RANDOM, 8), rel=0.04)


def test_a_step_that_waits_for_nobody_has_its_own_share_of_the_delays() -> None:
    """One of 8 ranks is 0.2 s late in each step, in turn: synchronous steps have all of it, solo's an eighth."""
    late_s = np.tile(np.eye(8) * 0.2, (50, 1))
    assert stragglers.synchronous(late_s, 0.2, 0.0).step_s == pytest.approx(0.4)
    assert stragglers.partial(late_s, 0.2, 0.0, Partial(SOLO)).step_s == pytest.approx(0.225, rel=0.02)
    assert stragglers.pipelined(late_s, 0.2, 0.0).step_s < stragglers.synchronous(late_s, 0.2, 0.0).step_s


def test_a_rank_that_is_always_late_gains_nothing_and_the_others_do() -> None:
    """Three ranks make a step in 1 s, the last one in 3 s: majority's rounds do not wait for it."""
    found = stragglers.partial(np.tile([0.0, 0.0, 0.0, 2.0], (60, 1)), 1.0, 0.0, Partial(MAJORITY))
    assert found.slowest_per_s == pytest.approx(1 / 3)
    assert found.steps_per_s == pytest.approx((3 + 1 / 3) / 4)
    assert found.in_time == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("message_s", [0.0, 0.1, 3.0])
def test_without_lateness_all_are_synchronous_or_hide_the_message(message_s: float) -> None:
    none_s = np.zeros((10, 5))
    for settings in (Partial(MAJORITY), Partial(SOLO), Partial(5), Partial(RANDOM)):
        assert stragglers.partial(none_s, 1.0, message_s, settings).step_s == pytest.approx(1 + message_s)
    assert stragglers.synchronous(none_s, 1.0, message_s).step_s == pytest.approx(1 + message_s)
    assert stragglers.pipelined(none_s, 1.0, message_s).step_s == pytest.approx(max(1, message_s))
    assert stragglers.pipelined(none_s, 1.0, message_s, k=1).step_s == pytest.approx(1 + message_s)
    assert stragglers.local(none_s, 1.0, message_s, 4).step_s == pytest.approx(1 + message_s / 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_lateness(seed: int) -> None:
    late_s = random_lateness(seed)
    ranks = late_s.shape[1]
    sync = stragglers.synchronous(late_s, 0.05, 0.01)
    everyone = stragglers.partial(late_s, 0.05, 0.01, Partial(ranks))
    assert everyone.step_s == pytest.approx(sync.step_s)
    assert everyone.wait_s == pytest.approx(sync.wait_s)
    assert everyone.in_time == ranks
    # Waiting for fewer ranks, or less often, makes no step longer; nor does one less late rank.
    assert stragglers.local(late_s, 0.05, 0.01, len(late_s)).step_s <= sync.step_s + 1e-12
    assert stragglers.pipelined(late_s, 0.05, 0.01).step_s <= sync.step_s + 1e-12
    assert stragglers.synchronous(late_s[:, : max(1, ranks - 1)], 0.05, 0.01).step_s <= sync.step_s + 1e-12
    for found in (sync, stragglers.local(late_s, 0.05, 0.01, 4), stragglers.pipelined(late_s, 0.05, 0.01)):
        assert found.wait_s >= -1e-12


def test_times_that_cannot_be_simulated() -> None:
    for bad in (np.zeros((0, 3)), np.zeros(3), np.array([[np.nan]])):
        with pytest.raises(UserError, match="cannot be simulated"):
            stragglers.synchronous(bad, 1.0, 0.0)
    with pytest.raises(UserError, match="among 2 ranks"):
        stragglers.partial(np.zeros((2, 2)), 1.0, 0.0, Partial(3))


def test_distributions() -> None:
    seconds = lateness.parse("normal:0.5,0.1").seconds(50, 1.0)
    assert seconds.shape == (lateness.STEPS, 50)
    assert [seconds.mean(), seconds.std()] == pytest.approx([0.5, 0.1], rel=0.05)
    assert lateness.parse("normal:0,1").seconds(50, 1.0).min() == 0
    assert lateness.parse("exponential:0.2").seconds(50, 1.0).mean() == pytest.approx(0.2, rel=0.05)
    assert (lateness.parse("one:2,0.3").seconds(4, 1.0) == [0, 0, 0.3, 0]).all()
    drawn = lateness.parse("random:0.2").seconds(4, 1.0)
    assert ((drawn == 0.2).sum(axis=1) == 1).all() and (drawn.sum(axis=0) > 0).all()
    again = lateness.parse("random:0.2").seconds(4, 1.0)
    assert (again == drawn).all(), "equal seeds give equal steps"
    assert (lateness.parse("random:0.2").seconds(4, 1.0, seed=1) != drawn).any()


@pytest.mark.parametrize("text", ["normal:1", "exponential:1,2", "random:x", "one:-1,2", "normal:inf,1"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not of the form"):
        lateness.parse(text)


def test_a_rank_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="rank 4 does not exist among 4"):
        lateness.parse("one:4,1").seconds(4, 1.0)


def test_files(tmp_path: Path) -> None:
    late = tmp_path / "late.csv"
    late.write_text("step,rank,late_s\n7,0,0\n7,1,0.5\n8,0,0.25\n8,1,0\n9,0,1\n")
    assert lateness.parse(str(late)).seconds(2, 1.0).tolist() == [[0, 0.5], [0.25, 0]], "rank 1 lacks step 9"
    assert lateness.parse(str(late)).seconds(64, 1.0).shape == (2, 64)
    computing = tmp_path / "computing.csv"
    computing.write_text(
        "step,dp_rank,stage,forward_s,backward_s\n0,0,0,1,1\n0,0,1,2,3\n0,1,0,5,5\n0,1,1,0,0\n0,2,0,1,2\n"
    )
    # The slowest stage counts: 5, 10 and 3 s; their median takes a step of 0.1 s.
    found = lateness.of_file(computing).seconds(3, 0.1)
    assert found.tolist() == [pytest.approx([0, 0.1, -0.04])]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has the columns none"),
        ("step,rank\n0,0\n", "has the columns step, rank"),
        ("step,rank,late_s\n0,0,x\n", "a row cannot be read"),
        ("step,rank,late_s\n0\n", "a row cannot be read"),
        ("step,rank,late_s\n", "no step with a time"),
        ("step,rank,late_s\n0,0,nan\n", "no step with a time"),
        ("step,rank,a_s,b_s\n0,0,0,0\n", "no step with a time"),
    ],
)
def test_files_without_lateness(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "late.csv").write_text(text)
    with pytest.raises(UserError, match=problem):
        lateness.parse(str(tmp_path / "late.csv"))
    with pytest.raises(UserError, match="cannot be read"):
        lateness.parse(str(tmp_path / "nothing.csv"))
