"""`paceline plan stages`: the table of ticks, the figures of each stage, JSON, the picture, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from integration_tests.support.networks import network
from integration_tests.unit.launch.test_cli import refused
from paceline.collectives import network_file
from paceline.launch import cli
from paceline.launch.plan.stages import plot
from paceline.stages import schedules
from paceline.stages.simulate import simulate


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["plan", "stages", *words])


def test_ticks_and_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = invoke("pipemare", "--stages", "3", "--microbatches", "2", "--steps", "2")
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[:4] == [
        "tick    0   1   2   3   4   5   6   7   8   9   10  11",
        "stage 0 F0  F1  F2  .   .   B0  F3  B1* .   B2  .   B3*",
        "stage 1 .   F0  F1  .   B0  F2  B1* F3  B2  .   B3* .",
        "stage 2 .   .   F0  B0  F1  B1* F2  B2  F3  B3* .   .",
    ]
    (first,) = [line for line in lines if line.startswith("│     0 ")]
    cells = [cell.strip() for cell in first.strip("│").split("│")]
    assert cells == ["0", "1", "0", "2.5", "< 1", "100.0%", "1", "3"]
    assert "12 ticks, stages compute 66.7%" in result.stdout
    assert "A step returns the loss of 1 before" in result.stdout


@pytest.mark.parametrize("name", schedules.SCHEDULES)
@pytest.mark.parametrize("columns", [20, 60, 80])
def test_ticks_fit(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = invoke(name, "--stages", "4", "--microbatches", "6", "--backward", "2", "--transfer", "1")
    assert result.exit_code == 0, result.output
    ticks = [line for line in result.stdout.splitlines() if line.startswith(("tick", "stage 0 ", "stage 3 "))]
    assert max(map(len, ticks)) <= columns
    shown = [word.strip("*") for line in ticks if line.startswith("stage 3 ") for word in line.split()[2:]]
    assert [shown.count(f"F{number}") for number in range(18)] == [1] * 18
    assert [shown.count(f"B{number}") for number in range(18)] == [2] * 18


def test_json() -> None:
    result = invoke("pipedream", "--stages", "2", "--microbatches", "1", "--steps", "2", "--json")
    found = json.loads(result.stdout)
    assert found["schedule"] == "pipedream"
    assert (found["loss_lag"], found["synchronous"], found["backward_weights"]) == (1, False, "forwards")
    first, second = found["per_stage"]
    assert (first["tau_forward"], first["tau_backward"], first["weight_copies"], first["activations"]) == (1, 1, 2, 2)
    assert (second["tau_forward"], second["stable_below"], second["weight_copies"]) == (0, 2, 1)
    kinds = [f"{one['kind']} {one['minibatch']} {one['version']}" for one in first["instructions"]]
    assert kinds == ["forward 0 0", "forward 1 0", "backward 0 0", "update 0 0", "backward 1 0", "update 1 1"]
    assert found["end"] == max(one["end"] for one in first["instructions"])


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "schedule.png"
    result = invoke("pipemare", "--plot", str(path))
    assert result.exit_code == 0, result.output
    assert imread(path).std() > 0.1
    shown = simulate(schedules.make("pipemare", 4, 4), 3)
    (axes,) = plot.schedule_figure(shown).axes
    assert len(axes.patches) == 4 * 3 * 4 * 2
    assert {text.get_text() for text in axes.texts} == {str(number) for number in range(12)}
    assert axes.get_xlim() == (0, shown.end_s)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1", "stage 2", "stage 3"]


def test_results_are_sent_as_on_a_measured_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "network.json"
    made = network(["a", "b", "c"], {}, latency_s=2e-3, bytes_per_s=1e6)
    slow = [
        msgspec.structs.replace(one, latency_s=9e-3) if (one.sender, one.receiver) == (2, 1) else one
        for one in made.pairs
    ]
    network_file.write(msgspec.structs.replace(made, pairs=tuple(slow)), path)
    words = ("gpipe", "--stages", "3", "--microbatches", "1", "--steps", "1", "--forward", "2", "--network", str(path))
    result = invoke(*words, "--message", "4000", "--tick", "10")
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    # A message takes 2 ms and 4 ms for its bytes, 0.6 ticks; from stage 2 to 1 it takes 13 ms.
    assert lines[1:4] == [
        "stage 0 F0  F0  .   .   .   .   .   .   .   .   .   B0* .",
        "stage 1 .   .   F0  F0  .   .   .   .   .   B0* .   .   .",
        "stage 2 .   .   .   .   .   F0  F0  B0* .   .   .   .   .",
    ]
    assert "a tick being 10 ms: stage 0 to 1 6 ms; stage 1 to 2 6 ms, back 13 ms." in result.stdout
    found = json.loads(invoke(*words, "--message", "4000", "--tick", "10", "--json").stdout)
    assert found["transfers"][3] == {"sender": 2, "receiver": 1, "ticks": pytest.approx(1.3)}
    assert found["end"] == pytest.approx(3 * 2 + 3 * 1 + 0.6 + 0.6 + 1.3 + 0.6)


MESSAGE = "--network FILE --message 4 --tick"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("zigzag", "no schedule 'zigzag'"),
        ("gpipe --stages 0", "0 stages"),
        ("gpipe --microbatches -1", "-1 micro-batches"),
        ("gpipe --steps 0", "--steps 0"),
        ("gpipe --forward 0", "--forward 0"),
        ("gpipe --backward -2", "--backward -2"),
        ("gpipe --transfer -1", "--transfer -1"),
        ("gpipe --steps 1000000", "too many to show"),
        ("gpipe --plot picture.doc", ".doc is none of"),
        ("gpipe --network FILE", "--network says how long messages take, not how large they are"),
        (f"gpipe {MESSAGE} 0", "--tick 0 cannot be used"),
        ("gpipe --network FILE --message 5 --tick 1", "The size '5' cannot be used"),
        (f"gpipe {MESSAGE} 1 --transfer 0", "both say how long results travel"),
        (f"gpipe {MESSAGE} 1 --stages 4", "among 3 ranks, and there are 4"),
        ("gpipe --network FILE --message 1MiB --tick 0.001 --stages 3", "more than 1000 ticks of 0.001 ms"),
        ("gpipe --network nowhere.json --message 4 --tick 1", "nowhere.json cannot be read"),
        ("gpipe --tick 1", "--tick has no effect"),
        ("gpipe --message 4", "--message has no effect"),
    ],
)
def test_what_cannot_be_shown_is_refused(tmp_path: Path, words: str, said: str) -> None:
    path = tmp_path / "network.json"
    network_file.write(network(["a", "b", "c"], {}), path)
    refused(invoke(*words.replace("FILE", str(path)).split()), said)
