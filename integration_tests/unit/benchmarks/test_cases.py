"""The table of cases, and `python -m examples.benchmarks` with a benchmark that measures nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.benchmarks import cases, command, page
from paceline.examples.benchmarks.cases import CASES, KINDS, Case, benchmark, chosen
from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.collectives.systems import find as find_collective
from paceline.examples.benchmarks.harness import report
from paceline.examples.benchmarks.harness.ratio import over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Tell
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.scale.systems import SYSTEMS as SCALE
from paceline.examples.benchmarks.skew.model import SYSTEMS as SKEW
from paceline.examples.benchmarks.stages.benchmark import SYSTEMS as STAGES
from paceline.examples.benchmarks.steps.benchmark import _rate
from paceline.examples.benchmarks.steps.benchmark import find as find_steps
from paceline.examples.benchmarks.training.codecs import CODINGS
from paceline.examples.benchmarks.training.uneven import SYSTEMS as UNEVEN

LOCAL = ("many", "many-wrapper", "many-unmodified", "collectives-small")
TABLES: dict[str, Collection[str]] = {
    "pipeline": STAGES,
    "coordination": SCALE,
    "skew": SKEW,
    "codecs": CODINGS,
    "uneven": UNEVEN,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_can_be_measured(case: Case) -> None:
    settings = case.parsed()
    assert 0 < len(settings.systems) <= 4, "more crowd each other out of a small machine's processor"
    for name in settings.systems:
        if case.kind == "steps":
            assert all(find_steps(name, model).name == name for model in settings.models)
        elif case.kind == "collectives":
            assert find_collective(name).refusal == ""
        else:
            assert name in TABLES[case.kind]
    if case.kind == "steps":
        assert [_rate(settings, models.find(model))[0] for model in settings.models]
        assert len(settings.models) == case.results
    if case.kind == "collectives":
        assert len(settings.worlds) * len(settings.cases) == case.results
    assert case.needs_root == (case.kind in ("steps", "collectives") and case.name not in LOCAL)
    kind = benchmark(case.kind)
    assert kind.title and kind.columns and case.parsed(quick=True)
    assert case.limits(False, None, None).time_s > 0 and case.limits(True, None, None).turns == 2
    assert (case.limits(True, 7.0, 9).time_s, case.limits(True, 7.0, 9).turns) == (7.0, 9)


def test_names_are_unique_and_choose_cases_or_kinds() -> None:
    names = [*(case.name for case in CASES), *KINDS]
    assert len(set(names)) == len(names) and [case.name for case in chosen([])] == names[: len(CASES)]
    assert [case.name for case in chosen(["late-ranks", "codecs"])] == ["codecs-digits", "codecs-uneven", "late-ranks"]
    with pytest.raises(UserError, match="There is no case resnet2") as refused:
        chosen(["resnet2"])
    assert "Did you mean resnet20?" in refused.value.remedy


def test_settings_replace_those_of_a_case() -> None:
    (case,) = chosen(["resnet20-rtt"])
    changed = case.with_settings(["hosts=1", "latency=none", "models=mini,lstm-x0.1", "ranks=3"])
    assert case.needs_root and not changed.needs_root and changed.shown.startswith("hosts=1 latency=none")
    settings = changed.parsed()
    assert (settings.hosts, settings.size, settings.latency, settings.rate) == (1, 3, None, "200mbit")
    assert settings.models == ("mini", "lstm-x0.1") and case.parsed().models == ("resnet20",)
    (case,) = chosen(["broadcast-growth"])
    assert not case.with_settings(["ranks=2,4"]).needs_root
    assert case.with_settings(["hosts=2,4"]).parsed().worlds == [(2, 2), (4, 4)]


@pytest.mark.parametrize(
    ("word", "said"),
    [("host=2", "Did you mean hosts?"), ("hosts=two", "Expected `int`"), ("bucket_bytes=1.5", "Expected `int`")],
)
def test_a_setting_that_cannot_be_used_is_refused(word: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        CASES[1].with_settings([word])
    assert said in str(refused.value)


def test_a_share_of_compute_gives_the_rate_of_a_ring() -> None:
    (case,) = chosen(["pipelined-third"])
    rate, note = _rate(case.parsed(), models.find("resnet50-x0.02"))
    # 2 (p - 1) / p times 2 MB of gradients in 0.3 x 450 ms.
    assert rate == "182mbit" and note is not None and "3.07 MB a step and link take 0.3 x the 450.0 ms" in note
    with pytest.raises(UserError, match="is not known"):
        _rate(case.parsed(), models.find("resnet20-real"))


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
