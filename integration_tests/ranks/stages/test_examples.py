"""The example of stages learns by every schedule (a few steps show it), and what compares schedules with it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from integration_tests.support.examples import printed, results
from integration_tests.support.ranks import run_ranks
from paceline.examples import characters
from paceline.examples.benchmarks import stages_report

CORRECTED = ("--annealing-steps", "4", "--correction", "0.135", "--warmup-steps", "3")
OTHERS = ("--nesterov", "0.5", "--update-every", "2", "--microbatches", "2")


def _said(rank: int, size: int, script: str, *arguments: tuple[str, ...]) -> list[str]:
    characters.HELD_OUT_BYTES = 8000
    return printed(script, *(("--batch-size", "8", *one) for one in arguments))


def test_characters_learn_with_every_kind_of_schedule() -> None:
    begin = ("--steps", "14", "--learning-rate", "0.01", "--schedule")
    asked = ((*begin, "gpipe"), (*begin, "pipemare", *CORRECTED), (*begin, "pipemare", *OTHERS))
    first, *others = run_ranks(_said, 3, "characters_stages_torch", *asked)
    assert others == [["", "", ""]] * 2, "rank 0 speaks"
    losses = [result["loss"] for said in first for result in results(said)]
    assert len(set(losses)) == 3, "schedules make other updates"
    assert all(loss < math.log(characters.VOCABULARY) for loss in losses)


def test_settings_are_compared_and_drawn(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    names = "gpipe,t1t2t3,bounded_ours,pipemare_cut"
    first, _ = run_ranks(
        _said, 2, "benchmarks.stages_torch", ("--steps", "12", "--seeds", "1,2", "--settings", names), timeout_s=100
    )
    found = results(first[0])
    assert [(one["seed"], one["setting"]) for one in found] == [
        (seed, name) for seed in (1, 2) for name in names.split(",")
    ]
    for one in found:
        assert len(one["losses"]) == one["steps"] == 12
        # All begin with the same weights and batch, also where the loss of the first mini-batch is returned later.
        assert one["losses"][0] == pytest.approx(
            next(each for each in found if each["seed"] == one["seed"])["losses"][0], abs=2e-4
        )
    assert next(one for one in found if one["setting"] == "bounded_ours")["options"] == {"update_every": 1}

    losses, times, picture = tmp_path / "losses.txt", tmp_path / "times.txt", tmp_path / "curves.png"
    losses.write_text(first[0])
    shares = {"gpipe": 0.5, "1f1b": 0.5, "pipemare": 0.8}
    systems = {name: {"bound_share": {"median": share}} for name, share in shares.items()}
    times.write_text(json.dumps({"microbatches": 1, "systems": systems}) + "\n")
    monkeypatch.setattr(
        sys, "argv", ["report", str(losses), "--times", str(times), "--gpipe-microbatches", "1", "--plot", str(picture)]
    )
    stages_report.main()
    table = capsys.readouterr().out.splitlines()
    rows = {cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in table[2:])}
    assert rows["GPipe"][6] == "24", "12 steps of stages that work half of the time"
    assert rows["PipeMare, T1+T2+T3"][6] == "16", "one of 12 steps is a warm-up: 2 + 11 / 0.8"
    mean = sum(one["loss"] for one in found if one["setting"] == "gpipe") / 2
    assert rows["GPipe"][4].startswith(f"{mean:.3f} ±")
    assert rows["GPipe"][2] == "1, 2"
    assert imread(picture).std() > 0
