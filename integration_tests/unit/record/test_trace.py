"""Traces and `paceline record`: refusals, merging of ranks, figures by hand, tables and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread

from paceline.errors import UserError
from paceline.launch.record import command as record
from paceline.launch.record import plot
from paceline.record import snapshot, trace
from paceline.record import summary as trace_summary
from paceline.record.timed import median_step, midmean, timed_steps
from paceline.record.trace import Arrival, Collective, Step, Tensor


def collective(tensors: list[int], size_bytes: int, start_s: float, end_s: float) -> dict[str, Any]:
    return {"kind": "allreduce", "tensors": tensors, "bytes": size_bytes, "start_s": start_s, "end_s": end_s}


def step(index: int, start_s: float, last_s: float, *collectives: dict[str, Any]) -> dict[str, Any]:
    """Tensor 1 arrives at the start, tensor 0 at `last_s`."""
    return {
        "index": index,
        "start_s": start_s,
        "arrivals": [[1, start_s], [0, last_s]],
        "collectives": list(collectives),
        "coordination_rounds": 3 + index,
    }


def rank_json(rank: int = 0, size: int = 2) -> dict[str, Any]:
    """Three steps. The first two can be timed: 100 ms, 30 of them waiting; 200 ms, 20 of them waiting."""
    return {
        "format": "paceline-trace",
        "version": 1,
        "rank": rank,
        "size": size,
        "host": f"host{rank}",
        "library": "torch",
        "horovod": "0.28.1+paceline.1",
        "paceline": "0.1.0",
        "tensors": [
            {"name": "allreduce.first.weight", "bytes": 400, "dtype": "float32", "process_set": 0},
            {"name": "allreduce.last.weight", "bytes": 80, "dtype": "float32", "process_set": 0},
        ],
        "steps": [
            step(4, 1.0, 1.04, collective([1], 80, 1.01, 1.03), collective([0], 400, 1.05, 1.07)),
            step(5, 1.1, 1.14, collective([1, 0], 480, 1.15, 1.16)),
            step(6, 1.3, 1.34, collective([1, 0], 480, 1.35, 1.36)),
        ],
        "totals": {"steps": 7, "coordination_rounds": 40, "messages": 9, "bytes": 3360},
    }


def of_json(document: dict[str, Any]) -> trace.Trace:
    return trace.decode(json.dumps(document).encode())


def one_rank(rank: int = 0, size: int = 2) -> trace.RankTrace:
    return of_json(rank_json(rank, size)).ranks[0]


def test_written_trace_reads_back_the_same_or_is_named_where_it_cannot_be_written(tmp_path: Path) -> None:
    merged = trace.merge([of_json(rank_json(rank, 3)) for rank in (2, 0, 1)])
    path = tmp_path / "trace.json"
    trace.write(merged, path)
    assert trace.load(path) == merged
    assert [one.host for one in merged.ranks] == ["host0", "host1", "host2"]
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    # A trace that cannot be written is reported.
    with pytest.raises(UserError, match="cannot be written"):
        trace.write(of_json(rank_json()), tmp_path / "absent" / "trace.json")


def test_ranks_are_merged_in_order_and_different_worlds_are_refused(tmp_path: Path) -> None:
    assert json.loads(msgspec.json.encode(one_rank(1, 2))) == rank_json(1, 2)
    assert trace.merge([of_json(rank_json(rank, 5)) for rank in (3, 1)]).missing == [0, 2, 4]
    with pytest.raises(ValueError, match=r"\[1, 1\]"):
        trace.merge([of_json(rank_json(1)), of_json(rank_json(1))])
    with pytest.raises(ValueError, match="rank 1 saw a world of 3"):
        trace.merge([of_json(rank_json(0, 2)), of_json(rank_json(1, 3))])
    # Parts are those of this trace in order of rank.
    path = tmp_path / "trace.json"
    for rank in (10, 9, 0):
        trace.part_path(path, rank).touch()
    (tmp_path / "other.json.rank1.json").touch()
    (tmp_path / "trace.json.rank1.json.part").touch()
    assert trace.parts(path) == [trace.part_path(path, rank) for rank in (0, 9, 10)]


GONE = object()


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("format", "chrome", "not a Paceline trace"),
        ("version", 2, "version 2"),
        ("host", GONE, "missing required field `host`"),
        ("rank", 2, "rank 2 cannot be in a world of 2"),
        ("rank", True, r"Expected `int`, got `bool` - at `\$\.rank`"),
        ("steps 1 start_s", "1.1", r"Expected `float`, got `str` - at `\$\.steps\[1\]\.start_s`"),
        ("steps 1 start_s", float("nan"), "not JSON"),
        ("steps 1 index", 4, "step 4 follows step 4"),
        ("steps 2 arrivals", [[0]], r"length 2, got 1 - at `\$\.steps\[2\]\.arrivals\[0\]`"),
        ("steps 2 arrivals", [[2, 1.3]], "step 6 names tensor 2 of 2"),
        ("steps 0 collectives 0 end_s", 1.0, r"ends before .*steps\[0\]\.collectives\[0\]`"),
        ("steps 0 collectives 1 bytes", GONE, r"field `bytes` - at `\$\.steps\[0\]\.collectives\[1\]`"),
        ("tensors", {}, r"Expected `array`, got `object` - at `\$\.tensors`"),
        ("totals messages", -1, r"Expected `int` >= 0 - at `\$\.totals\.messages`"),
    ],
)
def test_wrong_content_is_refused_with_its_place(place: str, value: Any, complaint: str, tmp_path: Path) -> None:
    document: Any = rank_json()
    *keys, last = [int(key) if key.isdigit() else key for key in place.split()]
    held = document
    for key in keys:
        held = held[key]
    held[last] = value
    if value is GONE:
        del held[last]
    refused(json.dumps(document).encode(), complaint, tmp_path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (json.dumps(rank_json())[:-40].encode(), "cut short or not JSON"),
        (b"", "cut short or not JSON"),
        (b"\x89PNG\r\n\x1a\n", "not JSON"),
        (b'[{"name": "cycle"}]', "not a Paceline trace"),
        (b"null", "not a Paceline trace"),
        (None, "cannot be read: No such file"),
    ],
)
def test_foreign_or_truncated_file_is_refused_by_name(content: bytes | None, complaint: str, tmp_path: Path) -> None:
    refused(content, complaint, tmp_path)


def refused(content: bytes | None, complaint: str, folder: Path) -> None:
    path = folder / "foreign.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=complaint) as caught:
        trace.load(path)
    assert str(path) in caught.value.problem


def test_times_waiting_and_summary_worked_out_by_hand() -> None:
    timed = timed_steps(one_rank())
    assert [one.step.index for one in timed] == [4, 5]
    assert [one.time_ms for one in timed] == pytest.approx([100, 200])
    # Step 4: last arrival 1.04, last end 1.07. Step 5: 1.14 and 1.16.
    assert [one.waiting_ms for one in timed] == pytest.approx([30, 20])
    # Summary worked out by hand.
    summary = trace_summary.summarise([one_rank()])
    assert (summary.tensors, summary.steps) == (2, 7)
    assert summary.step_ms == pytest.approx(150)  # of 100 and 200
    assert summary.waiting_share == pytest.approx(0.2)  # of 30 % and 10 %
    assert summary.bytes_per_step == 480
    assert summary.messages_per_step == 1  # of 2, 1, 1
    assert summary.rounds_per_step == 8  # of 7, 8, 9
    # Median step is one that was timed.
    merged = trace.merge([of_json(rank_json(rank)) for rank in (0, 1)])
    assert median_step(merged) == 4  # the lower of 100 and 200 ms


def test_gaps_are_no_long_steps_and_a_single_step_has_no_time() -> None:
    document = rank_json()
    document["steps"][2]["index"] = 9
    assert [one.step.index for one in timed_steps(of_json(document).ranks[0])] == [4]
    document = rank_json()
    document["steps"][0]["collectives"][1]["end_s"] = 1.25  # a pipelined exchange reaches into the next step
    assert timed_steps(of_json(document).ranks[0])[0].waiting_ms == pytest.approx(60)
    del document["steps"][0]["collectives"][1]  # communication ends before the last arrival
    assert timed_steps(of_json(document).ranks[0])[0].waiting_ms == 0
    # Single step has no time.
    document = rank_json()
    del document["steps"][1:]
    summary = trace_summary.summarise(of_json(document).ranks)
    assert (summary.step_ms, summary.waiting_share) == (None, None)
    assert summary.messages_per_step == 2


def test_slowest_tensors_come_first_and_ranks_are_summarised_together() -> None:
    document = rank_json(0)
    document["tensors"].append({**document["tensors"][0], "name": "agreed.once"})
    document["steps"][0]["arrivals"].append([2, 1.0])
    document["steps"][0]["collectives"][0]["tensors"].append(2)
    ranks = of_json(document).ranks
    first, second = trace_summary.slowest_tensors(ranks)
    # last.weight: 30, 60, 60 ms from arrival to end; first.weight: 30, 20, 20.
    assert (first.name, first.size_bytes) == ("allreduce.last.weight", 80)
    assert (first.latency_ms, second.latency_ms) == pytest.approx((60, 20))
    assert trace_summary.slowest_tensors(ranks, count=1) == [first]
    # Ranks are summarised together.
    slow = rank_json(1)
    slow["steps"][2]["start_s"] = 1.5  # its second step takes 400 ms
    slow["steps"][2]["arrivals"] = [[1, 1.5], [0, 1.54]]
    summary = trace_summary.summarise([one_rank(0), of_json(slow).ranks[0]])
    assert summary.step_ms == pytest.approx(150)  # of 100, 100, 200, 400


FLOAT32 = 7


def test_snapshot_decodes_to_the_trace_format() -> None:
    tensors = [2, 4000, FLOAT32, 0, 40, FLOAT32, 0]
    arrivals = [2, 0, 500_000_000, 1, 500_000_000]
    collectives = [1, 0, 1_000_000_000, 1_250_000_000, 4040, 2, 1, 0]
    words = [*tensors, 1, 0, 500_000_000, 1, *arrivals, *collectives]
    read = iter(words)
    found, steps = snapshot.decode(read, ["conv.weight", "conv.bias"])
    assert found == (Tensor("conv.weight", 4000, "float32", 0), Tensor("conv.bias", 40, "float32", 0))
    message = Collective("allreduce", (1, 0), 4040, 1.0, 1.25)
    assert steps == (Step(0, 0.5, (Arrival(0, 0.5), Arrival(1, 0.5)), (message,), 1),)
    assert next(read, None) is None


def leave(path: Path, rank: int, size: int) -> Path:
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


def test_no_trace_is_an_error_unless_the_script_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"No rank wrote a trace(.|\n)*hvd\.init\(\)"):
        record.report(tmp_path / "trace.json", None, None, None, 0)
    assert record.report(tmp_path / "trace.json", None, None, None, 7) == 7
    assert "No rank wrote a trace" in capsys.readouterr().err


def test_earlier_trace_is_not_there_to_be_planned_from_after_a_run_that_left_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("of an earlier run")
    assert record.prepare(path) == path
    assert not path.exists()
    assert record.report(path, None, None, None, 7) == 7
    assert f"The trace of an earlier run is {path}.old." in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "trace.json.old").read_text() == "of an earlier run"
    # A new trace removes it.
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
    for step in late["steps"]:  # a clock 7 s ahead, and tensors submitted 5 ms later
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
    # A missing step is reported.
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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 4.0], 7 / 3),
        ([9.0, 1.0, 2.0, 4.0], 3.0),
        ([1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 900.0], 4.0),
    ],
)
def test_midmean_is_the_mean_of_the_middle_half(values: list[float], expected: float) -> None:
    assert midmean(values) == pytest.approx(expected)
