"""Benchmark all, with a stand-in for the commands that measure: failing rows, interrupted and resumed runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from integration_tests.unit.bench.every_results import measured, result
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.commands.command import main
from paceline.examples.benchmarks.commands.every import span
from paceline.examples.benchmarks.every import kept as kept_module
from paceline.examples.benchmarks.every import measuring, page
from paceline.examples.benchmarks.every.kept import Kept
from paceline.examples.benchmarks.every.rows import Row, chosen

# Two rows that need no root, and one that does.
HERE = ("many", "stages", "late-ranks")
ONLY = ",".join(HERE)

# Does as a command that measures: notes its words, prints results, or fails where the folder has a file "fail".
STAND_IN = """
import pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
print("mpi is left out: it is not there", file=sys.stderr)
if (folder / f"fail-{sys.argv[1]}").exists():
    print("Error: Rank 1 of stock ended with status 1.", "Its last output:", *range(20), sep="\\n", file=sys.stderr)
    sys.exit(2)
print((folder / f"{sys.argv[1]}.json").read_text())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where we are: with the stand-in, the results of three benchmarks and a page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text(STAND_IN)
    for benchmark in ("fusion", "pipeline", "partial"):
        (tmp_path / f"{benchmark}.json").write_text(json.dumps(result(benchmark)))
    (tmp_path / "page.md").write_text(f"above\n{page.BEGIN}\n{page.END}\nbelow\n")
    monkeypatch.setattr(measuring, "PROGRAM", (sys.executable, str(tmp_path / "bench.py")))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["all", *words])


def calls(folder: Path) -> list[str]:
    """The benchmarks that were called, in order; none again at the next call."""
    path = folder / "calls"
    found = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def test_rows_are_measured_kept_printed_and_written(folder: Path) -> None:
    done = run("--only", ONLY, "--json", "--output", "page.md", "--time-limit-s", "9", "--quick")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["row"] for line in lines] == list(HERE)
    assert lines[0].items() >= result("fusion").items()
    said = done.stderr.splitlines()
    assert said[0].startswith(
        "[1/3] many: 1,000 tensors of 4 KiB in buckets, 2 ranks of one machine; about 1 min, then"
    )
    assert "many: mpi is left out: it is not there" in said
    assert said[-1].startswith("3 of 3 rows measured in ")
    words = (folder / "calls").read_text().splitlines()
    assert all("--time-limit-s 9" in line and line.endswith("--json") for line in words)
    assert "--turns 3" in words[0]
    # Quick ones are kept apart.
    assert {path.name for path in (folder / "bench-results/quick").iterdir()} == {f"{name}.json" for name in HERE}
    found = Kept(folder / "bench-results/quick").find("many")
    assert found is not None and found.quick and found.results == (result("fusion"),)
    assert found.command.startswith("python -m examples.benchmarks fusion --hosts 1 ") and "--json" not in found.command
    text = (folder / "page.md").read_text()
    assert all(f"#### {name}:" in text for name in HERE) and text.startswith("above\n") and text.endswith("below\n")


def test_a_row_that_fails_is_named_with_its_error_and_the_others_go_on(folder: Path) -> None:
    (folder / "fail-pipeline").touch()
    done = run("--only", ONLY, "--json", "--output", "page.md")
    assert done.exit_code == 1
    assert calls(folder) == ["fusion", "pipeline", "partial"]
    _, failed, _ = [json.loads(line) for line in done.stdout.splitlines()]
    assert failed["row"] == "stages"
    assert failed["error"].splitlines() == [
        "stages ended with exit code 2.",
        "Error: Rank 1 of stock ended with status 1.",
        "Its last output:",
        *"0123",
    ]
    assert "Error: stages ended with exit code 2." in done.stderr and "Failed: stages." in done.stderr
    assert "#### stages:" not in (folder / "page.md").read_text()
    # --resume tries what failed again, and nothing else; then there is nothing to go on with.
    (folder / "fail-pipeline").unlink()
    done = run("--only", ONLY, "--output", "page.md", "--resume")
    assert done.exit_code == 0 and calls(folder) == ["pipeline"], done.output
    assert all(f"#### {name}:" in (folder / "page.md").read_text() for name in HERE)
    done = run("--only", ONLY, "--resume")
    assert done.exit_code == 2 and "Leave out --resume" in done.stderr and calls(folder) == []


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "now", lambda: "2026-11-23T10:00:00Z")
    monkeypatch.setattr(measuring, "now", lambda: "2026-11-23T10:00:00Z")
    assert run("--only", ONLY).exit_code == 0 and calls(folder) == ["fusion", "pipeline", "partial"]
    monkeypatch.setattr(kept_module, "now", lambda: "2026-11-23T11:00:00Z")
    monkeypatch.setattr(measuring, "now", lambda: "2026-11-23T11:00:05Z")
    whole = measuring.measure

    def interrupted(row: Row, *others: Any) -> Any:
        if row.name == "stages":
            raise KeyboardInterrupt
        return whole(row, *others)

    with monkeypatch.context() as context:
        context.setattr(measuring, "measure", interrupted)
        done = run("--only", ONLY, "--output", "page.md")
    assert done.exit_code == 130 and "--resume goes on" in done.stderr
    assert calls(folder) == ["fusion"]
    assert "#### many:" in (folder / "page.md").read_text()
    # The rows of the run before that have not been measured again are still there.
    dates = [found.begun for name in HERE if (found := Kept(folder / "bench-results").find(name))]
    assert dates == ["2026-11-23T11:00:05Z", "2026-11-23T10:00:00Z", "2026-11-23T10:00:00Z"]
    done = run("--only", ONLY, "--resume")
    assert done.exit_code == 0 and calls(folder) == ["pipeline", "partial"]


def test_what_is_kept_is_shown_and_written_without_measuring(folder: Path) -> None:
    kept = Kept(folder / "bench-results")
    done = run("--no-measure")
    assert done.exit_code == 2 and "Leave out --no-measure" in done.stderr and not kept.folder.exists()
    kept.open()
    kept.save(measured(chosen(["many"])[0]))
    done = run("--no-measure", "--output", "page.md")
    assert done.exit_code == 0 and "optimal" in done.stdout and calls(folder) == []
    assert "#### many:" in (folder / "page.md").read_text()
    assert json.loads(run("--no-measure", "--json").stdout)["row"] == "many"


def test_rows_that_need_root_are_left_out_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = run("--only", "resnet20,many,broadcast", "--json")
    assert done.exit_code == 0 and calls(folder) == ["fusion"]
    assert done.stderr.startswith("Left out: resnet20, broadcast. The emulated cluster needs root")
    assert [json.loads(line)["row"] for line in done.stdout.splitlines()] == ["resnet20", "broadcast", "many"]
    done = run("--only", "resnet20,broadcast")
    assert done.exit_code == 2 and "sudo env PATH=$PATH" in done.stderr and calls(folder) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "manny"], "Did you mean many?"),
        (["--time-limit-s", "0"], "0.0 is not in the range"),
        (["--output", "absent/page.md"], "does not exist"),
        (["--output", "bench.py"], "does not say where the tables belong"),
        (["--results", "page.md", "--only", "many"], "cannot be kept in page.md"),
        (["--resume"], "Leave out --resume"),
    ],
)
def test_bad_input_is_named_before_anything_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(tools, "check", lambda: None)
    done = run(*words)
    assert done.exit_code == 2 and said in done.stderr and calls(folder) == [], done.output


def test_the_list_has_every_row_and_measures_nothing(folder: Path) -> None:
    done = run("--list")
    assert done.exit_code == 0 and calls(folder) == []
    for row in chosen([]):
        assert f" {row.name} " in done.stdout
    assert not (folder / "bench-results").exists()


@pytest.mark.parametrize(
    ("printed", "said"), [("", "printed no result"), ("Segmentation fault", "something else than JSON")]
)
def test_a_command_that_prints_no_result_is_a_failure(folder: Path, printed: str, said: str) -> None:
    (folder / "fusion.json").write_text(printed)
    with pytest.raises(UserError, match=said):
        measuring.measure(chosen(["many"])[0], False, None, print)


def test_spans() -> None:
    assert [span(seconds) for seconds in (0.4, 59, 61, 3599, 3700, 7260)] == [
        "0 s", "59 s", "1 min", "1 h 0 min", "1 h 2 min", "2 h 1 min",
    ]  # fmt: skip
