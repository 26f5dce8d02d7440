"""The demo trains, judges and draws; a few epochs of PyTorch are enough to see that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline import trace
from paceline.launch import cli, demo

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(autouse=True)
def _pytorch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FRAMEWORKS", demo.FRAMEWORKS[:1])


def run_demo(folder: Path, epochs: int) -> Result:
    return CliRunner().invoke(cli.main, ["demo", "--epochs", str(epochs), "--output", str(folder)])


def test_demo_trains_and_draws(tmp_path: Path) -> None:
    result = run_demo(tmp_path, 10)
    assert result.exit_code == 0, result.output
    assert "PyTorch: epoch 10/10" in result.output
    assert "replicas equal" in result.output
    assert json.loads((tmp_path / "digits_torch.json").read_text())["equal"] is True
    assert trace.load(tmp_path / "digits_torch.trace.json").missing == []
    assert (tmp_path / "digits_torch.png").read_bytes().startswith(b"\x89PNG")


def test_too_little_training_fails_the_demo(tmp_path: Path) -> None:
    result = run_demo(tmp_path, 1)
    assert result.exit_code == 1
    assert "does not exceed 95%" in result.output


def test_script_that_fails_is_shown_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no digits today')\n")
    monkeypatch.setattr(demo.Framework, "path", script)
    result = run_demo(tmp_path, 1)
    assert result.exit_code == 1
    assert "no digits today" in result.output
    assert "PyTorch failed with exit code" in result.output
    assert "no digits today" in (tmp_path / "digits_torch.log").read_text()
    assert not (tmp_path / "digits_torch.png").exists()
