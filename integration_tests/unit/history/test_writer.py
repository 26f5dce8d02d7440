"""The file of a process: one of its own, and no error of a disk ends a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.history.checks.reading import records_of
from paceline.history.records import Step
from paceline.history.writer import History


def test_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    for number, name in enumerate(("history-3.jsonl", "history-3-2.jsonl"), 1):
        history = History(tmp_path / "made", 3)
        history.write(Step(1, number))
        assert not list(records_of(tmp_path / "made" / name))  # in the buffer
        history.flush()
    assert sorted(one.name for one in (tmp_path / "made").iterdir()) == ["history-3-2.jsonl", "history-3.jsonl"]
    assert list(records_of(tmp_path / "made" / "history-3.jsonl")) == [Step(1, 1)]
    assert list(records_of(tmp_path / "made" / "history-3-2.jsonl")) == [Step(1, 2)]


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "folder", 3)
    history.write(Step(1, 1))
    history.flush()
    (said,) = capsys.readouterr().err.splitlines()
    assert "rank 3 expected to write its history, found NotADirectoryError" in said and "Training goes on" in said
