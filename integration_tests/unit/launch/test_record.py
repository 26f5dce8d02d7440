"""`paceline record`: what becomes of the files that ranks left, tables and the picture of a step; no ranks are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread

from integration_tests.unit.record.test_trace import of_json, rank_json
from paceline.errors import UserError
from paceline.launch.record import command as record
from paceline.launch.record import plot
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
    whole = record.collect(path)
    assert whole.missing == [1, 3]
    assert trace.load(path) == whole
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
    whole = merged(3)
    table = record.summary_table(whole, "title")
    assert list(table.columns[0].cells) == ["0", "1", "2", "all"]
    assert list(table.columns[3].cells) == ["150.00 ms"] * 4
    assert list(table.columns[4].cells) == ["20.0%"] * 4
    assert list(record.slowest_table(whole).columns[0].cells) == ["allreduce.last.weight", "allreduce.first.weight"]


def merged(size: int) -> trace.Trace:
    return trace.merge([of_json(rank_json(rank, size)) for rank in range(size)])


def bars(figure: Figure) -> list[tuple[float, float]]:
    """Left edge and width of every bar, in ms."""
    found = [bar for bar in figure.axes[0].containers if isinstance(bar, BarContainer)]
    return [(patch.get_x(), patch.get_width()) for bar in found for patch in bar.patches]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("size", [1, 3])
def test_one_bar_per_collective_and_two_lanes_per_rank(size: int) -> None:
    figure = plot.step_figure(merged(size))  # step 4 has two collectives
    assert len(bars(figure)) == 2 * size
    lanes = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert lanes == [lane for rank in range(size) for lane in (f"rank {rank}: arrivals", "collectives")]
    assert texts(figure) == ["80 B", "400 B"] * size
    assert figure.axes[0].get_xlabel() == "ms since the first arrival of the step"


def test_ranks_are_aligned_on_the_ends_of_their_collectives() -> None:
    late = rank_json(1)
    for step in late["steps"]:  # a clock 7 s ahead, and tensors handed in 5 ms later
        step["start_s"] += 7.005
        step["arrivals"] = [[tensor, time_s + 7.005] for tensor, time_s in step["arrivals"]]
        for one in step["collectives"]:
            one["start_s"] += 7
            one["end_s"] += 7
    both = trace.merge([of_json(rank_json(0)), of_json(late)])
    found = bars(plot.step_figure(both, 4))
    assert found[:2] == [pytest.approx(bar) for bar in found[2:]]
    assert bars(plot.step_figure(merged(1), 5)) == [pytest.approx((50, 10))]


def test_picture_is_written_in_full_size_or_named(tmp_path: Path) -> None:
    figure, path = plot.step_figure(merged(2)), tmp_path / "step.png"
    plot.save(figure, path)
    height, width, _ = imread(path).shape
    assert (width, height) == (1440, 552)
    for name, said in (("step.docx", r"step\.docx cannot be written"), ("absent/step.png", "No such file")):
        with pytest.raises(UserError, match=said):
            plot.save(figure, tmp_path / name)


def test_step_that_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="no step 77 to draw"):
        plot.step_figure(merged(2), 77)
    empty = rank_json(0, 1)
    empty["steps"] = []
    with pytest.raises(UserError, match="no step to draw"):
        plot.step_figure(of_json(empty))


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (999, "999 B"), (4800, "4.8 kB"), (287016, "287 kB"), (25_600_000, "25.6 MB")]
)
def test_sizes_are_for_people(size_bytes: int, text: str) -> None:
    assert plot.size_text(size_bytes) == text
