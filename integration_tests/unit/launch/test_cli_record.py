"""What `paceline record` does with the files that ranks left, without running any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration_tests.unit.record.test_trace import of_json, rank_json
from paceline.errors import UserError
from paceline.launch.record import command as record
from paceline.record import trace


def leave(path: Path, rank: int, size: int) -> Path:
    """Write what `rank` of `size` leaves for the trace `path`."""
    part = trace.part_path(path, rank)
    part.write_text(json.dumps(rank_json(rank, size)))
    return part


def test_parts_become_one_trace_without_those_that_are_missing_or_cut_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    for rank in (0, 2):
        leave(path, rank, 4)
    merged = record.collect(path)
    assert merged.missing == [1, 3]
    assert trace.load(path) == merged
    assert trace.parts(path) == []
    assert "No trace of rank 1, 3 of 4" in capsys.readouterr().err
    leave(path, 0, 2)
    broken = leave(path, 1, 2)
    broken.write_text(broken.read_text()[:100])
    assert record.collect(path).missing == [1]
    assert trace.parts(path) == [broken]
    assert f"{broken} cannot be used: it is cut short" in capsys.readouterr().err
    leave(path, 0, 2)
    leave(path, 1, 3)
    with pytest.raises(UserError, match="different runs"):
        record.collect(path)


def test_no_trace_is_an_error_of_the_user_unless_the_script_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"No rank wrote a trace(.|\n)*hvd\.init\(\)"):
        record.report(tmp_path / "trace.json", None, 0)
    assert record.report(tmp_path / "trace.json", None, 7) == 7
    assert "No rank wrote a trace" in capsys.readouterr().err


def test_earlier_trace_is_not_there_to_be_planned_from_after_a_run_that_left_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("of an earlier run")
    assert record.prepare(path) == path
    assert not path.exists()
    assert record.report(path, None, 7) == 7
    assert f"The trace of an earlier run is {path}.old." in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "trace.json.old").read_text() == "of an earlier run"
    # With a new trace it goes.
    record.prepare(path)
    leave(path, 0, 1)
    record.collect(path)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_tables_have_a_row_per_rank_and_one_for_all(tmp_path: Path) -> None:
    merged = trace.merge([of_json(rank_json(rank, 3)) for rank in range(3)])
    table = record.summary_table(merged, "title")
    assert list(table.columns[0].cells) == ["0", "1", "2", "all"]
    assert list(table.columns[3].cells) == ["150.00 ms"] * 4
    assert list(table.columns[4].cells) == ["20.0%"] * 4
    assert list(record.slowest_table(merged).columns[0].cells) == ["allreduce.last.weight", "allreduce.first.weight"]
