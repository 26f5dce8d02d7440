"""What Benchmark all keeps and writes: files of results, tables of them, and a page around these."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.support.packages import ROOT
from integration_tests.unit.bench.every_results import measured
from paceline.errors import UserError
from paceline.examples.benchmarks.every import page
from paceline.examples.benchmarks.every.kept import Kept
from paceline.examples.benchmarks.every.rows import GROUPS, ROWS, Row, chosen
from paceline.examples.benchmarks.every.tables import as_markdown

(STEPS,) = chosen(["resnet20"])
OF_EACH = [next(row for row in ROWS if row.benchmark == benchmark) for benchmark in GROUPS]


def text(row: Row, **how: object) -> str:
    return "\n".join(as_markdown(row, measured(row, **how)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        (OF_EACH[0], ["| stock | 10.0 | 10.0 .. 10.0 |", "- optimal / stock: 0.800, 95 % in 0.800 .. 0.800 (5 turns)"]),
        (OF_EACH[1], ["| ddp | 16.0 |", "- optimal: 2 messages planned"]),
        (OF_EACH[2], ["| optimal | 8.0 |"]),
        (OF_EACH[3], ["| linear | 2300 |", "- linear / gloo: 0.548 (0.548 .. 0.548); the message alone 0.525"]),
        (OF_EACH[4], ["| q8, no feedback | 2.00000 ± 0.00000 |"]),
        (
            OF_EACH[5],
            ["| pipemare | 25 |", "- pipemare over 1f1b: 2.000", "- ours / torch, gpipe: 1.250 (1.250 .. 1.250)"],
        ),
        (OF_EACH[6], ["| solo |", "64 bytes"]),
    ],
    ids=lambda value: value.name if isinstance(value, Row) else None,
)
def test_a_row_has_its_figures_command_machine_and_date(row: Row, figures: list[str]) -> None:
    found = text(row)
    for figure in figures:
        assert figure in found, found
    assert found.startswith(f"#### {row.name}: {row.title}\n\n    ")
    assert ("    sudo env PATH=$PATH python -m examples.benchmarks of this row\n" in found) == row.needs_root
    told = " ".join(found.split())
    assert "Measured 2026-11-23 22:47 UTC in 61 s; load average before each table 0.25" in told
    assert "2 cores of a processor, Linux 6.1 with TCP's cubic, python 3.11, paceline 0.1, horovod 0.28.1." in told
    tables = [line for line in found.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in tables}) == 1 and len(tables) > 3


def test_several_results_have_a_table_and_a_load_each_and_quick_ones_say_so() -> None:
    found = text(STEPS, results=2, quick=True)
    assert found.count("| stock |") == 2 and "0.25, 0.25; 5 turns." in found
    assert "too short to rely on" in found and "too short" not in text(STEPS)


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "results")
    assert kept.find(STEPS.name) is None and kept.unfinished() is None
    kept.open()
    kept.save(measured(STEPS))
    assert kept.find(STEPS.name) == measured(STEPS)
    begun = kept.begin()
    assert kept.unfinished() == begun
    kept.end()
    assert kept.unfinished() is None
    assert sorted(path.name for path in kept.folder.iterdir()) == [f"{STEPS.name}.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"row": "resnet20"}'])
def test_a_file_that_is_something_else_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / f"{STEPS.name}.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        Kept(tmp_path).find(STEPS.name)
    assert str(path) in caught.value.problem and "Remove it" in caught.value.remedy


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be kept in .*file"):
        Kept(tmp_path / "file").open()


def written(path: Path, *rows: Row, begun: str = "2026-11-23T22:47:03Z") -> str:
    texts = {row.name: "".join(f"{line}\n" for line in as_markdown(row, measured(row, begun))) for row in rows}
    page.write(path, ROWS, texts)
    return path.read_text()


def test_a_page_keeps_what_is_around_and_rows_that_were_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    old = "<!-- row resnet50 -->\n#### of another day\n<!-- end of row -->\n"
    old += "<!-- row gone -->\ngone\n<!-- end of row -->\n"
    path.write_text(f"# Title\n\nabove\n\n{page.BEGIN}\n\n### Merging, once\n\n{old}{page.END}\n\nbelow\n")
    page.check(path)
    (pipeline,) = [row for row in OF_EACH if row.benchmark == "pipeline"]
    found = written(path, pipeline, STEPS)
    assert found.startswith(f"# Title\n\nabove\n\n{page.BEGIN}\n") and found.endswith(f"{page.END}\n\nbelow\n")
    order = ["### Merging, as measured", "#### resnet20:", "#### of another day", "### Pipeline stages", "#### stages:"]
    places = [found.index(heading) for heading in order]
    assert places == sorted(places) and found.count("\n### ") == 2 and "gone" not in found
    # Once more: the same; and a row that is measured again takes its own place.
    assert written(path, STEPS) == found
    again = written(path, STEPS, begun="2026-12-01T08:00:00Z")
    assert again == found.replace("2026-11-23 22:47", "2026-12-01 08:00", 1) != found


def test_a_new_page_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new.md"
    page.check(path)
    assert "#### resnet20:" in written(path, STEPS)
    page.check(path)


@pytest.mark.parametrize("content", ["no markers\n", page.END + page.BEGIN, page.BEGIN + page.BEGIN + page.END])
def test_a_page_without_a_place_for_tables_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        page.check(path)
    assert page.BEGIN in caught.value.remedy and page.END in caught.value.remedy
    with pytest.raises(UserError):
        written(path, STEPS)
    assert path.read_text() == content


def test_the_projects_page_takes_all_rows(tmp_path: Path) -> None:
    text_of_page = (ROOT / "docs/benchmarks.md").read_text()
    path = tmp_path / "benchmarks.md"
    path.write_text(text_of_page)
    found = written(path, *ROWS)
    assert [row.name for row in ROWS if f"\n<!-- row {row.name} -->\n" not in found] == []
    assert found.partition(page.BEGIN)[0] == text_of_page.partition(page.BEGIN)[0]
    assert found.partition(page.END)[2] == text_of_page.partition(page.END)[2]
