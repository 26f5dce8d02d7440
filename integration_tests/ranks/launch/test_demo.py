"""The demo trains with both ways of merging, judges and draws; a few epochs of PyTorch are enough to see that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline.launch import cli, demo
from paceline.record import trace

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(autouse=True)
def _pytorch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FRAMEWORKS", demo.FRAMEWORKS[:1])


def run_demo(folder: Path, epochs: int) -> Result:
    return CliRunner().invoke(cli.main, ["demo", "--epochs", str(epochs), "--output", str(folder)])


def test_demo_trains_with_stock_and_optimal_merging_and_draws(tmp_path: Path) -> None:
    result = run_demo(tmp_path, 10)
    assert result.exit_code == 0, result.output
    assert "PyTorch, stock: epoch 10/10" in result.output and "PyTorch, optimal: epoch 10/10" in result.output
    assert "replicas equal" in result.output
    accuracies = set()
    said = [line for line in result.output.splitlines() if "optimal: tried" in line or "optimal: The plan" in line]
    assert len(said) == 1, result.output
    for run, policy, states in (("stock", "threshold", ("off",)), ("optimal", "optimal", ("active", "stock"))):
        values = json.loads((tmp_path / f"digits_torch-{run}.json").read_text())
        assert values["equal"] is True
        assert values["fusion"]["policy"] == policy and values["fusion"]["state"] in states
        accuracies.add(values["accuracy"])
        traced = trace.load(tmp_path / f"digits_torch-{run}.trace.json")
        assert traced.missing == [] and traced.ranks[0].totals.steps == demo.RECORDED_STEPS
        assert (tmp_path / f"digits_torch-{run}.png").read_bytes().startswith(b"\x89PNG")
    assert len(accuracies) == 1, "the sum of two numbers does not depend on what is merged with them"


@pytest.mark.more
def test_too_little_training_fails_the_demo(tmp_path: Path) -> None:
    result = run_demo(tmp_path, 1)
    assert result.exit_code == 1
    assert "PyTorch" in result.output and "stock: accuracy" in result.output
    assert "does not exceed 95%" in result.output


def test_script_that_fails_is_shown_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no digits today')\n")
    monkeypatch.setattr(demo.Framework, "path", script)
    result = run_demo(tmp_path, 1)
    assert result.exit_code == 1
    assert "no digits today" in result.output
    assert "PyTorch, stock failed with exit code" in result.output
    assert "no digits today" in (tmp_path / "digits_torch-stock.log").read_text()
    assert not (tmp_path / "digits_torch-stock.png").exists()
