"""The demo trains side by side, compares and draws; a few steps of two runs are enough to see that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from integration_tests.support.more import more
from paceline.launch import cli
from paceline.launch.demo import command
from paceline.launch.demo.systems import FRAMEWORKS, Framework

TORCH, KERAS = FRAMEWORKS
COMPARED = ("Horovod", "DDP", "pipelined")
STEPS = {TORCH.name: "45", KERAS.name: "90"}  # with which all runs have learnt equally well


def run_demo(folder: Path, framework: Framework, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(command, "FRAMEWORKS", (framework,))
    return CliRunner().invoke(cli.main, ["demo", "--steps", STEPS[framework.name], "--output", str(folder)])


@pytest.mark.parametrize("framework", [more(TORCH), more(KERAS)], ids=lambda one: one.name)
def test_demo_trains_compares_and_draws(framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(framework, systems=tuple(one for one in framework.systems if one.label in COMPARED))
    result = run_demo(tmp_path, few, monkeypatch)
    assert result.exit_code == 0, result.output
    rows = [line for line in result.output.splitlines() if " ms " in line and line.startswith("│")]
    assert len(rows) == len(few.systems) and "1.00" in rows[0]
    assert "s left" in result.output and "paceline plan trace.json" in result.output
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    for file in tmp_path.glob("*.json"):
        values = json.loads(file.read_text())
        assert values["equal"] is True and values["step_ms"] > 0 and values["compute_ms"] > 0
    assert len(list(tmp_path.glob("*.json"))) == len(few.systems)


def test_a_run_that_fails_is_shown_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(TORCH, systems=(replace(TORCH.systems[0], wrapper="none"),))
    result = run_demo(tmp_path, one, monkeypatch)
    assert result.exit_code == 1
    assert "invalid choice: 'none'" in result.output
    assert "PyTorch, Horovod failed with exit code" in result.output
    assert "invalid choice: 'none'" in (tmp_path / "pytorch-horovod.log").read_text()
    assert not (tmp_path / "steps.png").exists()
