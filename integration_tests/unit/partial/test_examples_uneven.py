"""What makes trainings uneven, and what compares exchanges on them; no ranks are started."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.examples import characters_lengths
from paceline.examples.benchmarks import delays
from paceline.examples.benchmarks.harness.turns import Limits
from paceline.examples.benchmarks.pace import UNMEASURED, Pace
from paceline.examples.benchmarks.training import uneven
from paceline.launch import runs

RANKS = 8


def _delays(kind: str, step: int, seed: int = 0) -> list[float]:
    return [delays.delay_ms(kind, 40.0, step, rank, RANKS, seed) for rank in range(RANKS)]


def test_delays_rotate_or_hit_one_random_rank_in_each_step() -> None:
    amounts = [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
    assert _delays(delays.ROTATING, 0) == amounts and _delays(delays.ROTATING, 1) == [*amounts[1:], amounts[0]]
    assert _delays(delays.NONE, 3) == [0.0] * RANKS
    with pytest.raises(ValueError, match="delays are one of none, random, rotating, found 'late'"):
        _delays("late", 0)
    late = []
    for step in range(400):
        found = _delays(delays.RANDOM, step)
        assert sorted(found) == [0.0] * (RANKS - 1) + [40.0]
        late.append(found.index(40.0))
    assert set(late) == set(range(RANKS)) and max(map(late.count, range(RANKS))) < 100
    assert late != [_delays(delays.RANDOM, step, seed=1).index(40.0) for step in range(400)]


def test_pace_sleeps_for_computing_and_delay_and_leaves_the_first_steps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = 100.0, []

    def sleep(duration_s: float) -> None:
        nonlocal now_s
        now_s += duration_s
        slept.append(duration_s)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    pace = Pace(lambda step: 30.0 if step < UNMEASURED else 10.0)
    with pytest.raises(ValueError, match="no step was made"):
        pace.steps_per_s()
    pace.compute(10.0)
    assert slept == [0.04] and pace.steps_per_s() == pytest.approx(25.0)
    for _ in range(UNMEASURED - 1 + 20):
        pace.compute(10.0)
    assert pace.steps_per_s() == pytest.approx(50.0)


def test_batches_have_pieces_of_similar_length() -> None:
    batches = list(itertools.islice(characters_lengths.training(0, 4, 8, 0), 300))
    lengths = []
    for inputs, targets in batches:
        assert inputs.shape == targets.shape and inputs.min() >= 0 and inputs.max() < 256
        known = targets != characters_lengths.NOTHING
        # A piece is one run of characters, and each one's target is the next.
        assert (known[:, :-1] >= known[:, 1:]).all() and known[:, 0].all()
        np.testing.assert_array_equal(inputs[:, 1:][known[:, :-1]], targets[:, :-1][known[:, :-1]])
        lengths.append(known.sum(axis=1) + 1)
        assert lengths[-1].min() >= characters_lengths.SHORTEST and lengths[-1].max() <= characters_lengths.LONGEST
    assert np.mean([one.std() for one in lengths]) < 0.1 * np.std(np.concatenate(lengths))
    again = itertools.islice(characters_lengths.training(0, 4, 8, 0), 300)
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(batches, again))


def test_exchanges_train_alike_but_for_the_seed_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    def train(script: Path, ranks: int, arguments: Any, environ: Any, limit_s: float) -> dict[str, Any]:
        assert script.exists() and ranks == 8
        seed = arguments[arguments.index("--seed") + 1]
        seen.append((script.stem, environ["PACELINE_EXCHANGE"], seed))
        speed = {"sync": 2.0, "majority": 4.0}[environ["PACELINE_EXCHANGE"]]
        return {"steps_per_s": speed, "accuracy": 0.9, "loss": 0.1, "apart": 0.02}

    monkeypatch.setattr(runs, "train", train)
    settings = uneven.Settings(cases=("random", "lengths"), systems=("sync", "majority"), seeds=2)
    found = list(uneven.measure(settings, Limits(60.0), lambda text: None))
    turns = [("sync", "0"), ("majority", "0"), ("sync", "1"), ("majority", "1")]
    assert seen == [(script, *turn) for script in ("uneven_digits", "uneven_lengths") for turn in turns]
    (ratio,) = found[0].comparison.ratios
    assert ratio.name == "majority_over_sync" and found[0].comparison.value(ratio).median == 0.5
    with pytest.raises(UserError, match="'late'"):
        next(uneven.measure(uneven.Settings(systems=("late",)), Limits(), print))
    once = list(uneven.measure(settings, Limits(1e-9), lambda text: None))
    assert [one.comparison.complete for one in once] == [1, 1], "each case gets one seed"
