"""The character-level examples learn with both exchanges (a few steps show it), and what compares the exchanges."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from integration_tests.support.examples import printed, results
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from paceline.examples import characters
from paceline.examples.benchmarks import compare_exchanges

STEPS = 12
TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}


def _said(rank: int, size: int, example: str) -> list[str]:
    """Return the output of `example` with the synchronous and with the pipelined exchange."""
    # Less to compile and to evaluate; before the example takes them from there.
    characters.LAYERS, characters.HELD_OUT_BYTES = 1, 8000
    words = ("--steps", str(STEPS), "--learning-rate", "0.01", "--exchange")
    return printed(example, (*words, "sync"), (*words, "pipelined"))


@pytest.mark.parametrize(
    "example",
    ["characters_torch", pytest.param("characters_keras", marks=pytest.mark.soak), more("characters_tensorflow")],
)
def test_characters_learn_with_both_exchanges(example: str) -> None:
    env = {} if example == "characters_torch" else TENSORFLOW
    first, second = run_ranks(_said, 2, example, env=env)
    found = [result for said in first for result in results(said)]
    for result in found:
        assert math.isfinite(result["loss"]) and result["loss"] < math.log(characters.VOCABULARY)
        assert result["equal"] is True and 0 < result["accuracy"] < 1
    assert found[0]["loss"] != found[1]["loss"], "the pipelined exchange makes other updates"
    assert second == ["", ""], "rank 0 speaks"


def test_ranks_share_the_training_text_and_see_nothing_of_the_test() -> None:
    first, second = (characters.training(rank, 2, 50, 0) for rank in range(2))
    test = characters.held_out()
    for windows in (first, second, test):
        assert windows.inputs.shape == windows.targets.shape == (len(windows.inputs), characters.CONTEXT)
        assert windows.inputs.min() >= 0 and windows.inputs.max() < characters.VOCABULARY
        np.testing.assert_array_equal(windows.inputs[:, 1:], windows.targets[:, :-1])
    assert not np.array_equal(first.inputs, second.inputs)
    assert np.array_equal(first.inputs, characters.training(0, 2, 50, 0).inputs)


# Replaces horovodrun, whose start takes longer than the rest of the test: prints its command line as rank 0.
STARTER = """
import json, os, sys
sync = os.environ["PACELINE_EXCHANGE"] == "sync"
seed = int(sys.argv[sys.argv.index("--seed") + 1])
corrected = float(os.environ["PACELINE_PIPELINED_CORRECTION"]) == 0.01
loss = 1.0 + seed + 0.5 * (not sync) - 0.25 * corrected
result = {"loss": loss, "accuracy": 0.5, "equal": "--unequal" not in sys.argv}
print("[0]<stdout>:RESULT " + json.dumps(result))
"""


def _compare(folder: Path, patch: pytest.MonkeyPatch, *arguments: str) -> int:
    starter = folder / "starter.py"
    starter.write_text(STARTER)
    patch.setattr("paceline.launch.horovodrun.words", lambda: [sys.executable, str(starter)])
    patch.setattr(sys, "argv", ["compare_exchanges.py", "--examples", "digits_torch", *arguments])
    return compare_exchanges.main()


def test_comparison_runs_every_seed_with_both_exchanges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _compare(tmp_path, monkeypatch, "--seeds", "3", "--ranks", "2,4") == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows == [
        f"| digits_torch | {ranks} | {exchange} | {loss} ± 1.0000 | {apart} | 50.00% ± 0.00% | {equal} |"
        for ranks in (2, 4)
        for exchange, loss, apart, equal in (
            ("sync", "2.0000", "", ""),
            ("pipelined", "2.5000", "+0.5", "-"),
            ("pipelined, corrected", "2.2500", "+0.2", "-"),
        )
    ]


def test_schedule_of_the_characters_grows_and_falls() -> None:
    factors = [characters.rate_factor(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1 and np.all(np.diff(factors[10:]) < 0) and 0 < factors[-1] < 1e-3
    assert characters.rate_factor(0, 1) == 1


def test_unequal_replicas_end_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _compare(tmp_path, monkeypatch, "--seeds", "1", "--", "--unequal") == 1
    assert "digits_torch.py: the replicas on the ranks are not equal." in capsys.readouterr().err


def test_exchanges_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _compare(tmp_path, monkeypatch, "--seeds", "1", "--exchanges", "sync,majority") == 0
    assert [row.split(" | ")[2] for row in capsys.readouterr().out.splitlines()[2:]] == ["sync", "majority"]
    assert _compare(tmp_path, monkeypatch, "--seeds", "2", "--exchanges", "solo") == 0
    (row,) = capsys.readouterr().out.splitlines()[2:]
    assert row == "| digits_torch | 2 | solo | 2.0000 ± 0.7071 |  | 50.00% ± 0.00% |  |", "nothing to compare with"
    with pytest.raises(SystemExit):
        _compare(tmp_path, monkeypatch, "--exchanges", "sometimes")
    assert "'sometimes' is none of sync, pipelined, corrected, own, majority, solo, local" in capsys.readouterr().err
