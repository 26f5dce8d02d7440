"""`python -m examples.benchmarks`, with a benchmark that measures nothing: failing, interrupted and resumed runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.benchmarks import cases, command, page
from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.harness import report
from paceline.examples.benchmarks.harness.ratio import over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Tell

HERE, ROOTED = ("many", "stages"), "resnet20"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hosts: int = 1
    models: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    bucket_bytes: int = 0
    rate: str = ""


class Stand:
    """In place of all benchmarks; `failing` has systems whose case fails."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.measured: list[Limits] = []

    def measure(self, settings: Settings, limits: Limits, tell: Tell) -> Iterator[report.Measured]:
        if self.failing & set(settings.systems):
            raise UserError("Rank 1 of ddp ended.", "Its last output: no more paper")
        self.measured.append(limits)
        turns = {
            "stock": [Turn({"step_ms": 20.0, "bytes": None})] * 5,
            "ours": [Turn({"step_ms": 10.0, "bytes": 5e6})] * 5,
        }
        comparison = Comparison(turns, "step_ms", [over("ours", "stock", "step_ms")])
        yield report.Measured("mini: 2 ranks", comparison, {"ranks": 2}, ["a note"], {"mpi": "it is not installed"})


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.chdir(tmp_path)
    made = Stand()
    columns = (report.Column("time ms", "step_ms"), report.Column("payload MB", "bytes", ".2f", 1e6))
    kind = report.Benchmark("Steps", Settings, made.measure, "per step", (*columns, report.Column("-", "never")), 1.0)
    for module in (cases, command, page):
        monkeypatch.setattr(module, "benchmark", lambda name: kind)
    monkeypatch.setattr(command, "require", lambda library: None)
    table = [replace(case, results=1) for case in cases.CASES if case.name in (*HERE, ROOTED)]
    monkeypatch.setattr(cases, "CASES", tuple(table))
    monkeypatch.setattr(page, "CASES", tuple(table))
    monkeypatch.setattr(tools, "check", lambda: None)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(command.main, words)


def results(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_cases_are_measured_kept_and_shown(stand: Stand, tmp_path: Path) -> None:
    assert "3 cases, about" in run("--list").stdout and not stand.measured
    done = run("--json", "--quick", "--turns", "3", "--time-limit-s", "7")
    assert done.exit_code == 0, done.output
    assert [one["case"] for one in results(done)] == [ROOTED, *HERE]
    assert [(one.turns, one.time_s) for one in stand.measured] == [(3, 7.0)] * 3
    kept = json.loads((tmp_path / "bench-results/quick/many.json").read_text())
    assert kept["quick"] and kept["command"].endswith("examples.benchmarks many --quick --time-limit-s 7 --turns 3")
    run("many")
    shown = run("--no-measure", "many")
    for text in ("mini: 2 ranks", "5.00", "a note", "ours / stock: 0.500", "mpi is left out: it is not installed"):
        assert text in shown.stdout, text
    assert "never" not in shown.stdout, "columns without a value are left out"
    (tmp_path / "bench-results/many.json").write_text("{")
    assert "bench-results/many.json has no results" in run("--no-measure", "many").stderr


def test_a_case_that_fails_is_named_and_a_resumed_run_measures_only_it(stand: Stand) -> None:
    stand.failing = {"gpipe"}
    done = run()
    assert done.exit_code == 1 and "no more paper" in done.stderr and "Failed: stages." in done.stderr
    stand.failing = set()
    again = run("--resume")
    assert again.exit_code == 0 and len(stand.measured) == 3, "two, and the one that had failed"
    assert run("--resume").exit_code == 2, "nothing is left to resume"


def test_changed_settings_are_measured_and_not_kept(stand: Stand, tmp_path: Path) -> None:
    done = run("resnet20", "hosts=1", "systems=stock")
    assert done.exit_code == 0 and "hosts=1 systems=stock" in done.stderr
    assert not (tmp_path / "bench-results").exists()
    for words, said in (
        (("many", "hosts=1", "--resume"), "are not kept"),
        (("many", "bytes=3"), "has no setting bytes"),
        (("mony",), "There is no case mony"),
        (("many", "--turns", "0"), "--turns"),
    ):
        refused = run(*words)
        assert refused.exit_code == 2 and said in refused.stderr, words


def test_without_root_cases_of_hosts_are_left_out(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UserError("The emulated cluster needs root.", "Be root.")

    monkeypatch.setattr(tools, "check", refuse)
    done = run("--json")
    assert [one["case"] for one in results(done)] == list(HERE)
    assert "Left out: resnet20. The emulated cluster needs root" in done.stderr
    assert run(ROOTED).exit_code == 2


def test_tables_are_written_between_the_markers_of_the_page(stand: Stand, tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text((ROOT / "docs/benchmarks.md").read_text())
    before = path.read_text()
    assert run("many", "--output", str(path)).exit_code == 0
    text = path.read_text()
    assert text.partition(page.BEGIN)[0] == before.partition(page.BEGIN)[0]
    assert text.partition(page.END)[2] == before.partition(page.END)[2]
    assert "#### many: 1,000 tensors" in text and "    python -m examples.benchmarks many\n" in text
    assert "| ours | 10.0 | 10.0 .. 10.0 | 5.00 |" in text and "- ours / stock: 0.500" in text
    assert "#### resnet20: ResNet-20" in text and "#### stages-late" not in text, "what is no case any more goes"
    path.write_text("no markers")
    assert "does not say where the tables belong" in run("many", "--output", str(path)).stderr


def test_the_page_has_a_part_for_cases_only_and_titles_as_the_table() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text()
    names = {case.name: case.title for case in cases.CASES}
    blocks = page._BLOCK.findall(page._parts(ROOT / "docs/benchmarks.md")[1])
    assert blocks and all(name in names and f"#### {name}: {names[name]}\n" in text for name, _ in blocks)
