"""The files of PACELINE_METRICS: their format, folders that cannot be written, ranks that change, forked processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.metrics import textfile
from paceline.metrics.textfile import Textfile, render
from paceline.metrics.values import COUNTER, GAUGE, Metric

# A sample as the text exposition format has it.
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} ([-+0-9.e]+)')
STEPS = Metric("paceline_steps_total", COUNTER, 'Steps.\nAll of them, \\ and "so" on.', 12)


class Library:
    """Stands where Horovod's library does."""

    _name = "/site-packages/horovod/torch/mpi_lib_v2.so"

    def __init__(self) -> None:
        self.rank = 3

    def horovod_rank(self) -> int:
        return self.rank

    def horovod_size(self) -> int:
        return 4


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def collected(_library: ctypes.CDLL) -> list[Metric]:
        return [STEPS]

    monkeypatch.setattr(textfile, "collect", collected)
    yield Library()


def test_names_are_described_once_and_labels_are_escaped() -> None:
    states = [
        Metric("paceline_fusion_state", GAUGE, "State.", int(one == "off"), {"state": one}) for one in ("off", "on")
    ]
    text = render([STEPS, *states], {"rank": "0", "exchange": 'a"b\\c\nd'})
    assert text.splitlines() == [
        '# HELP paceline_steps_total Steps.\\nAll of them, \\\\ and "so" on.',
        "# TYPE paceline_steps_total counter",
        'paceline_steps_total{rank="0",exchange="a\\"b\\\\c\\nd"} 12',
        "# HELP paceline_fusion_state State.",
        "# TYPE paceline_fusion_state gauge",
        'paceline_fusion_state{rank="0",exchange="a\\"b\\\\c\\nd",state="off"} 1',
        'paceline_fusion_state{rank="0",exchange="a\\"b\\\\c\\nd",state="on"} 0',
    ]
    assert text.endswith("\n")
    assert all(SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))


def test_a_file_follows_the_rank_and_is_whole(library: Any, tmp_path: Path) -> None:
    written = Textfile(library, tmp_path, 0.01)
    written.begin()
    deadline = time.monotonic() + 10
    while not list(tmp_path.glob("*.prom")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 'rank="3",size="4",library="torch"' in (tmp_path / "paceline_rank3.prom").read_text()
    written.end()
    assert [one.name for one in tmp_path.iterdir()] == ["paceline_rank3.prom"]
    # The next world of an elastic job.
    library.rank = 1
    written.begin()
    written.end()
    assert [one.name for one in tmp_path.iterdir()] == ["paceline_rank1.prom"]
    # Nothing is written between two worlds.
    (tmp_path / "paceline_rank1.prom").unlink()
    time.sleep(0.1)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_reported_once_and_may_come_later(
    library: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "later"
    written = Textfile(library, folder, 3600)
    written.begin()
    for _ in range(3):
        written._write()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"Paceline: rank 3 expected to write its metrics to {folder}/paceline_rank3.prom, found")
    assert "Training goes on." in line
    folder.mkdir()
    written.end()
    assert (folder / "paceline_rank3.prom").exists()


def test_a_forked_process_writes_nothing(library: Any, tmp_path: Path) -> None:
    written = Textfile(library, tmp_path, 3600)
    written.begin()
    child = multiprocessing.get_context("fork").Process(target=written.end)
    child.start()
    child.join(10)
    assert child.exitcode == 0 and not list(tmp_path.iterdir())
