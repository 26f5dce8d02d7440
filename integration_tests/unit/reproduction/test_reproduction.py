"""Numbers of the papers: rows do what they declare, misses have reasons, and the page is what the command writes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.reproduction import command, own, page, papers
from paceline.examples.reproduction.googlenet import googlenet
from paceline.examples.reproduction.measured import Cell
from paceline.examples.reproduction.rows import CHANGED, EXPLAINED_ABOVE, Mark, Missed, Row, result

ROWS = [pytest.param(row, id=f"{paper.name}-{row.quantity}") for paper in papers.PAPERS for row in paper.rows]
PAGE = ROOT / "docs" / "measurements" / "reproduction.md"


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_within_its_tolerance_or_is_a_known_miss_with_a_reason(row: Row) -> None:
    found = result(row)
    assert found.within == (row.missed is None), f"{found.recomputed}, the paper has {found.published}"
    assert row.note or not (row.missed or row.fitted or abs(found.off) > EXPLAINED_ABOVE)


def test_our_own_rows_are_simulated_within_the_limits_or_have_a_reason() -> None:
    found = papers.own_results()
    assert median(one.off for one in found) <= own.MEDIAN_WITHIN
    for one in found:
        assert one.row.note or one.off <= own.NOTED_ABOVE, (one.row.quantity, one.ratio)
    kinds = {one.row.kind for one in found}
    assert len(kinds) == 9 and len({(one.row.kind, one.row.quantity) for one in found}) == len(found)


def test_no_quantity_is_given_twice_and_every_paper_has_rows_that_may_be_criteria() -> None:
    for paper in papers.PAPERS:
        names = [row.quantity for row in paper.rows]
        assert sorted(set(names)) == sorted(names)
        assert sum(row.mark.hard for row in paper.rows) > 5
        assert paper.impossible
        assert not any(row.mark is Mark.MEM_M and row.missed for row in paper.rows), "such values are no criteria"


def test_page_is_what_the_command_writes() -> None:
    command = "python -m examples.reproduction --output docs/measurements/reproduction.md"
    assert PAGE.read_text() == page.page(papers.results(), papers.own_results()), command


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main.main(list(arguments))
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_command_prints_tables_or_json_and_writes_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = _run(capsys, "--output", str(tmp_path / "page.md"))
    assert code == 0
    assert all(paper.name in out for paper in papers.PAPERS)
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()
    code, out, _ = _run(capsys, "--json")
    assert code == 0
    found = json.loads(out)
    ours = found.pop(own.NAME)
    assert len(ours) == len(papers.own_results()) and all(row["ratio"] > 0 for row in ours)
    assert [len(rows) for rows in found.values()] == [len(paper.rows) for paper in papers.PAPERS]
    assert all(row["verdict"] != CHANGED for rows in found.values() for row in rows)
    code, _, err = _run(capsys, "--output", str(tmp_path / "nowhere" / "page.md"))
    assert code == 2 and "does not exist" in err


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"fitted": True}, "fitted"),
        ({"published": (1.0, 2.1)}, CHANGED),
        ({"published": (1.0, 2.1), "missed": Missed.OPEN}, "missed, open"),
        ({"published": (1.0, 2.1), "printed": 0.1}, "reproduced"),
        ({"missed": Missed.EXPLAINED}, CHANGED),
    ],
)
def test_verdicts(changes: dict[str, Any], verdict: str) -> None:
    row = Row("quantity", Mark.TEXT, "place", (1.0, 2.0), lambda: (1.005, 2.0))
    assert result(dataclasses.replace(row, **changes)).verdict == verdict


def test_deviation_is_that_of_the_worst_value_and_numbers_of_values_must_agree() -> None:
    row = Row("quantity", Mark.TEXT, "place", (1.0, 2.0, 0.0), lambda: (1.01, 1.9, 0.0))
    assert result(row).off == pytest.approx(-0.05)
    assert result(dataclasses.replace(row, recompute=lambda: (1.0, 2.0, 0.1))).off == float("inf")
    with pytest.raises(ValueError):
        _ = result(dataclasses.replace(row, recompute=lambda: 1.0)).within


def test_a_row_that_changes_is_named_and_the_exit_code_is_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row("a quantity", Mark.TEXT, "place", 1.0, lambda: 2.0)
    monkeypatch.setattr(command, "results", lambda: [(papers.PAPERS[0], [result(row)])])
    code, _, err = _run(capsys)
    assert code == 1 and "Changed: a quantity" in err


def test_a_measurement_that_is_gone_is_named() -> None:
    with pytest.raises(UserError, match=r"stages\.md has no cell zigzag / utilisation in 'Measured'"):
        Cell("stages.md", "Measured", ("zigzag",), "utilisation").text()


def test_layers_of_googlenet() -> None:
    layers = googlenet()
    assert (len(layers.layer_bytes), sum(layers.layer_bytes)) == (64, 4 * 13_379_136)
    assert layers.compute_s == pytest.approx(0.3023, abs=1e-4)
