"""What makes trainings uneven, and what compares exchanges on them; no ranks are started."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.examples import characters_lengths
from paceline.examples.benchmarks import delays
from paceline.examples.benchmarks.harness import uneven_training
from paceline.examples.benchmarks.pace import UNMEASURED, Pace
from paceline.launch import runs

RANKS = 8


def _delays(kind: str, step: int, seed: int = 0) -> list[float]:
    return [delays.delay_ms(kind, 40.0, step, rank, RANKS, seed) for rank in range(RANKS)]


def test_one_random_rank_is_late_in_each_step() -> None:
    late = []
    for step in range(400):
        found = _delays(delays.RANDOM, step)
        assert sorted(found) == [0.0] * (RANKS - 1) + [40.0]
        late.append(found.index(40.0))
    assert set(late) == set(range(RANKS)) and max(map(late.count, range(RANKS))) < 100
    assert late != [_delays(delays.RANDOM, step, seed=1).index(40.0) for step in range(400)]


def test_rotating_delays_reach_every_rank_in_turn() -> None:
    amounts = [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
    assert _delays(delays.ROTATING, 0) == amounts
    assert _delays(delays.ROTATING, 1) == [*amounts[1:], amounts[0]]
    for rank in range(RANKS):
        assert sorted(_delays(delays.ROTATING, step)[rank] for step in range(RANKS)) == amounts


def test_no_delays_and_unknown_ones() -> None:
    assert _delays(delays.NONE, 3) == [0.0] * RANKS
    with pytest.raises(ValueError, match="delays are one of none, random, rotating, found 'late'"):
        delays.delay_ms("late", 1.0, 0, 0, 2, 0)


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


def _comparison(
    monkeypatch: pytest.MonkeyPatch, *, limit_s: float = 1e3, systems: Any = uneven_training.SYSTEMS
) -> Any:
    """`compare` of two cases with three seeds where a run says what its seed and system are and takes ten seconds."""
    now_s = 0.0

    def train(script: Path, ranks: int, arguments: Any, environ: Any, limit_s: float) -> dict[str, Any]:
        nonlocal now_s
        now_s += 10
        assert script.exists() and ranks == 8
        seed = int(arguments[arguments.index("--seed") + 1])
        speed = {"sync": 2.0, "majority": 3.0, "solo": 4.0}[environ["PACELINE_EXCHANGE"]]
        return {"steps_per_s": speed + seed, "accuracy": 0.9, "loss": 0.1 * seed, "apart": 0.02 * seed}

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    said: list[str] = []
    return uneven_training.compare(8, range(3), ["random", "lengths"], systems, said.append, limit_s), said


def test_systems_are_compared_over_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = _comparison(monkeypatch)
    assert [(one["case"], one["system"]) for one in found] == [
        (case, system) for case in ("random", "lengths") for system in uneven_training.SYSTEMS
    ]
    assert found[1] == {
        "case": "random",
        "system": "majority",
        "steps_per_s": {"mean": 4.0, "sd": 1.0},
        "accuracy": {"mean": pytest.approx(0.9), "sd": pytest.approx(0.0)},
        "loss": {"mean": pytest.approx(0.1), "sd": pytest.approx(0.1)},
        "apart": {"mean": pytest.approx(0.02), "sd": pytest.approx(0.02)},
        "seeds": 3,
        "over_sync": pytest.approx(4 / 3),
    }
    assert json.loads(json.dumps(found)) and len(said) == 18
    assert said[0] == "random, seed 0, sync: 2.00 steps/s, accuracy 90.00%, loss 0.0000"


def test_no_seed_is_begun_that_would_pass_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = _comparison(monkeypatch, limit_s=100, systems=["majority", "solo"])
    assert [one["seeds"] for one in found] == [3, 3, 2, 2] and len(said) == 10
    assert {one["over_sync"] for one in found} == {None}
    found, _ = _comparison(monkeypatch, limit_s=1)
    assert {one["seeds"] for one in found} == {1}, "each case gets one"


def test_unknown_cases_and_systems_are_refused() -> None:
    for cases, systems in ((["late"], ["sync"]), (["random"], ["late"])):
        with pytest.raises(UserError, match="'late' cannot be compared"):
            uneven_training.compare(2, [0], cases, systems, print, 1.0)
