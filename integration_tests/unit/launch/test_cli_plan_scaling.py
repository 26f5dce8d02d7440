"""`paceline plan --workers`: table, JSON, picture, late workers, traces of torch.profiler, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from integration_tests.unit.collectives.test_collectives import measured as probed
from integration_tests.unit.fusion.test_from_trace import recorded
from integration_tests.unit.launch.test_cli import refused
from integration_tests.unit.predict.test_execution_trace import Script, profiled
from paceline.collectives import network_file
from paceline.launch import cli
from paceline.launch.plan.scaling import numbers
from paceline.record import trace

__all__ = ["profiled"]  # a fixture


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trace.write(recorded(), tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["plan", *words])


def values(*words: str) -> dict[str, Any]:
    result = invoke("trace.json", "--json", *words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_table_has_a_row_per_setting_and_a_section_per_number() -> None:
    result = invoke("trace.json", "--workers", "2,64", "--late", "exponential:0.01")
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if "│" in line]
    names = ["stock", "optimal, not armed", "optimal", "pipelined", "local", "split", "majority", "solo"]
    assert [row[1] for row in rows] == names * 2
    assert [row[0] for row in rows if row[0]] == ["2", "64"]
    assert "Network: alpha 500 us, beta 7.5 ns per byte; a coordination round of 0.4 ms among 3 ranks" in result.stdout
    assert "Plan of" not in result.stdout


def test_json_and_picture(folder: Path) -> None:
    found = values("--workers", "1:4096", "--plot", "steps.svg")
    assert [one["workers"] for one in found["workers"]] == [2**power for power in range(13)]
    assert found["late"] is None and found["network"]["alpha_s"] == pytest.approx(5e-4)
    for one in found["workers"]:
        assert all(0 < each["scaling"] <= 1 and each["step_s"] > 0 for each in one["settings"])
    drawn = (folder / "steps.svg").read_text()
    assert "<svg" in drawn and drawn.count("<path") > 6


def test_network_constants_come_from_flags_or_a_file(folder: Path) -> None:
    given = values("--workers", "4", "--alpha", "1e-5", "--beta", "1e-9", "--gamma", "1e-10")
    assert given["network"] == {"alpha_s": 1e-5, "beta_s_per_byte": 1e-9, "gamma_s_per_byte": 1e-10, "algorithm": None}
    # A cost among two ranks is one start-up and one transfer in each direction.
    ring = values("--workers", "2", "--cost", "2e-4,3e-9", "--ranks", "2")["network"]
    assert [ring["alpha_s"], ring["beta_s_per_byte"]] == pytest.approx([1e-4, 3e-9])
    network_file.write(probed(), folder / "network.json")
    found = values("--workers", "4", "--network", "network.json")["network"]
    assert [found["alpha_s"], found["beta_s_per_byte"]] == [probed().alpha_s, probed().beta_s_per_byte]


def test_a_trace_of_the_profiler(profiled: tuple[Script, Path, Path]) -> None:
    _, execution, kineto = profiled
    words = [str(execution), "--kineto", str(kineto), "--cost", "1e-3,1e-8"]
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    assert [one["dtype"] for one in json.loads(result.stdout)["gradients"]] == ["float"] * 5
    result = invoke(*words, "--workers", "2,4", "--ranks", "4")
    assert result.exit_code == 0, result.output
    assert "a coordination round is not known from the trace" in result.stdout
    refused(invoke(*words, "--workers", "2"), "among 1 rank has no cost", "Give --ranks")
    constants = (str(execution), "--kineto", str(kineto), "--alpha", "1e-4", "--beta", "1e-9", "--coordination-ms", "3")
    refused(invoke(*constants, "--workers", "2"), "A coordination round among 1 rank", "Give --ranks")
    result = invoke(*constants, "--workers", "2", "--ranks", "8")
    assert "a coordination round of 3 ms among 8 ranks, scaled" in result.stdout
    refused(invoke(str(execution)), "it is not a Paceline trace")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--late", "one:0,1"), "--late has a meaning only with --workers"),
        (("--workers", "0,2"), "are no numbers from 1 to 65536"),
        (("--workers", "two"), "are no numbers"),
        (("--workers", "8:2"), "are no numbers"),
        (("--workers", "2", "--late", "sometimes"), "the file cannot be read"),
        (("--workers", "2", "--alpha", "1"), "Give both --alpha and --beta"),
        (("--workers", "2", "--alpha", "-1", "--beta", "1"), "cannot be -1.0"),
        (("--workers", "2", "--cost", "1,1", "--alpha", "1", "--beta", "1"), "takes the network from one place"),
        (("--workers", "2", "--curve"), "takes the network from one place"),
        (("--workers", "2", "--output", "plan.json"), "exclude each other"),
        (("--workers", "2", "--plot", "steps.doc"), "cannot be drawn"),
    ],
)
def test_refusals(words: tuple[str, ...], problem: str) -> None:
    refused(invoke("trace.json", *words), problem)


def test_numbers_of_workers() -> None:
    assert numbers("64,2,2") == [2, 64]
    assert numbers("3:20") == [4, 8, 16]
    assert numbers("1:1") == [1]
