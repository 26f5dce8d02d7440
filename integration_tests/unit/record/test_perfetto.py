"""Chrome traces of recordings: format, times, counters, aligned clocks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.chrome_traces import counter, tracks
from integration_tests.unit.record.test_trace import collective, merged, of_json, rank_json
from paceline.errors import UserError
from paceline.launch.record import horovods_timeline, perfetto
from paceline.record import trace


def test_every_step_message_and_gradient_is_a_slice() -> None:
    found = tracks(perfetto.document(merged(2)))
    assert list(found) == ["rank 0 on host0", "rank 0: gradients", "rank 1 on host1", "rank 1: gradients"]
    own = found["rank 0 on host0"]
    assert [one["name"] for one in own["steps"]] == ["step 4", "step 5", "step 6"]
    assert [(one["ts"], one["dur"]) for one in own["steps"]] == [(0, 100e3), (100e3, 200e3), (300e3, 60e3)]
    assert own["steps"][0]["args"] == {"tensors": 2, "messages": 2, "bytes": 480, "coordination rounds": 7}
    assert [(one["ts"], one["dur"]) for one in own["exposed communication"]] == [(40e3, 30e3), (140e3, 20e3)]
    assert [(one["ts"], one["dur"]) for one in own["messages"]] == [
        (10e3, 20e3), (50e3, 20e3), (150e3, 10e3), (350e3, 10e3),
    ]  # fmt: skip
    assert own["messages"][2]["args"] == {
        "step": 5,
        "kind": "allreduce",
        "bytes": 480,
        "tensors": ["allreduce.last.weight", "allreduce.first.weight"],
        "coordination rounds of the step": 8,
    }
    gradients = found["rank 0: gradients"]
    assert list(gradients) == ["allreduce.last.weight", "allreduce.first.weight"]
    assert [(one["ts"], one["dur"]) for one in gradients["allreduce.last.weight"]] == [
        (0, 30e3), (100e3, 60e3), (300e3, 60e3),
    ]  # fmt: skip


def test_counters_rise_and_fall_to_zero() -> None:
    document = perfetto.document(merged(1))
    assert counter(document, 1, "bytes in flight") == [80, 0, 400, 0, 480, 0, 480, 0]
    assert counter(document, 1, "tensors waiting") == [1, 0, 1, 0, 1, 2, 0, 1, 2, 0]
    assert counter(document, 1, "exposed communication (ms)") == pytest.approx([30, 20])


def test_messages_in_flight_together_have_tracks_of_their_own() -> None:
    document = rank_json(0, 1)
    document["steps"][0]["collectives"].append(collective([], 8, 1.02, 1.06))
    own = tracks(perfetto.document(of_json(document)))["rank 0 on host0"]
    assert (len(own["messages"]), len(own["messages 2"])) == (3, 2)
    # A pipelined exchange: the message of a step ends after its tensor is submitted again.
    document["steps"][0]["collectives"][0]["end_s"] = 1.12
    gradients = tracks(perfetto.document(of_json(document)))["rank 0: gradients"]
    assert len(gradients["allreduce.last.weight"]) == 3


def test_clocks_of_ranks_are_aligned_over_the_whole_run() -> None:
    ahead = rank_json(1)
    for step in ahead["steps"]:
        step["start_s"] += 7
        step["arrivals"] = [[tensor, time_s + 7] for tensor, time_s in step["arrivals"]]
        for one in step["collectives"]:
            one["start_s"] += 7
            one["end_s"] += 7
    found = tracks(perfetto.document(trace.merge([of_json(rank_json(0)), of_json(ahead)])))
    for name in ("steps", "messages"):
        first, second = ([one["ts"] for one in found[f"rank {rank} on host{rank}"][name]] for rank in (0, 1))
        assert first == pytest.approx(second)


def test_file_is_compressed_by_its_name_or_named_where_it_cannot_be_written(tmp_path: Path) -> None:
    perfetto.save(merged(2), tmp_path / "t.json")
    perfetto.save(merged(2), tmp_path / "t.json.gz")
    plain = (tmp_path / "t.json").read_bytes()
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == plain
    assert json.loads(plain)["displayTimeUnit"] == "ms"
    with pytest.raises(UserError, match="cannot be written: No such file"):
        perfetto.save(merged(2), tmp_path / "absent" / "t.json")
    empty = rank_json(0, 1)
    empty["steps"] = []
    with pytest.raises(UserError, match="no step for a timeline"):
        perfetto.save(of_json(empty), tmp_path / "t.json")


def phases(pid: int, name: str, ends_s: list[float]) -> list[dict[str, Any]]:
    """Events of Horovod's timeline: messages of one tensor that take 1 ms and contain a phase of 0.5 ms."""
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}]
    for end_s in ends_s:
        begun = int(1e6 * end_s) - 1000
        events += [
            {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": begun - 500, "pid": pid},
            {"ph": "X", "name": "1", "ts": begun - 400, "pid": pid, "dur": 0},
            {"ph": "E", "ts": begun - 100, "pid": pid},
            {"ph": "B", "name": "ALLREDUCE", "ts": begun, "pid": pid},
            {"ph": "B", "name": "GLOO_ALLREDUCE", "ts": begun + 200, "pid": pid},
            {"ph": "E", "ts": begun + 700, "pid": pid},
            {"ph": "E", "ts": begun + 1000, "pid": pid, "args": {"dtype": "float32", "shape": "[20]"}},
        ]
    return [*events, {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": int(1e6 * ends_s[-1]) + 5000, "pid": pid}]


# Messages of the tensor in the recording end 0.03, 0.16 and 0.36 s after the first arrival.
BEFORE, RECORDED, AFTER = [7.2, 7.5], [8.03, 8.16, 8.36], [8.9, 9.0]


@pytest.mark.parametrize("whole", [[*BEFORE, *RECORDED, *AFTER], RECORDED, [*RECORDED, *AFTER]])
def test_horovods_timeline_is_put_on_the_clock_of_the_recording(whole: list[float], tmp_path: Path) -> None:
    events = phases(1, "allreduce.last.weight", whole)
    text = json.dumps([{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch": 5}}, *events])
    path = tmp_path / "horovod.json"
    for content in (text, text.removesuffix("]") + ",", text[:-12]):  # of a run that ended early
        path.write_text(content)
        found = tracks(perfetto.document(merged(2), horovods_timeline.load(path)))
        assert list(found["Horovod's timeline (rank 0)"]) == ["allreduce.last.weight"]
        own = found["Horovod's timeline (rank 0)"]["allreduce.last.weight"]
        ends = [one["ts"] + one["dur"] for one in own if one["name"] == "ALLREDUCE"]
        messages = [found["rank 0 on host0"]["messages"][number] for number in (0, 2, 3)]
        first = whole.index(RECORDED[0])
        expected = [one["ts"] + one["dur"] for one in messages]
        assert ends[first : first + 3] == pytest.approx(expected, abs=2)
        assert [one["name"] for one in own[:4]] == ["NEGOTIATE_ALLREDUCE", "rank 1", "ALLREDUCE", "GLOO_ALLREDUCE"]


def test_another_timeline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "horovod.json"
    for content, problem in (
        ("[", "is not a timeline"),
        (json.dumps(phases(1, "allreduce.other", RECORDED)), "no message in common"),
        (json.dumps(phases(1, "allreduce.last.weight", RECORDED[:2])), "no message in common"),
        (json.dumps(phases(1, "allreduce.last.weight", [1.0, 1.2, 1.4])), "no message in common"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=problem):
            perfetto.document(merged(2), horovods_timeline.load(path))
    with pytest.raises(UserError, match="cannot be read"):
        horovods_timeline.load(tmp_path / "none.json")
