"""Flight-recorder dumps: how operations of Horovod become entries of PyTorch's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.launch.record import command
from paceline.record import flight_recorder
from paceline.record.flight_recorder import Operations
from paceline.record.snapshot import KINDS

FLOAT32 = 7


def operations(*rows: dict[str, Any]) -> Operations:
    """Each row replaces values of a completed allreduce of 2 x 3 float32."""
    common = {
        "names": "allreduce.w", "kinds": 0, "dtypes": FLOAT32, "process_sets": 0, "shapes": [2, 3], "steps": 0,
        "numbers": 1, "submitted_ns": 10, "started_ns": 20, "completed_ns": 30,
    }  # fmt: skip
    columns = {name: [{**common, **row}[name] for row in rows] for name in common}
    return Operations(**columns, ranks=[(0, []), (4, [0, 2])])


def test_each_name_is_a_process_group_with_its_own_sequence() -> None:
    dump = flight_recorder.dump(
        operations(
            {},
            {"names": "broadcast.b", "kinds": KINDS.index("broadcast"), "process_sets": 4, "completed_ns": 0},
            {"steps": 1, "numbers": 2, "started_ns": 0, "completed_ns": 0},
        ),
        size=3,
        epoch_ns=1000,
    )
    assert dump["version"] == "2.10"
    assert dump["pg_config"] == {
        "allreduce.w": {"name": "allreduce.w", "desc": "process set 0", "ranks": "[0, 1, 2]"},
        "broadcast.b of process set 4": {
            "name": "broadcast.b of process set 4",
            "desc": "process set 4",
            "ranks": "[0, 2]",
        },
    }
    first, second, third = dump["entries"]
    assert [one["state"] for one in dump["entries"]] == ["completed", "started", "scheduled"]
    assert [one["record_id"] for one in dump["entries"]] == [0, 0, 1]
    assert (first["profiling_name"], second["profiling_name"]) == ("gloo:all_reduce", "gloo:broadcast")
    assert (first["collective_seq_id"], third["collective_seq_id"]) == (1, 2)
    assert (first["input_sizes"], first["input_dtypes"]) == ([[2, 3]], ["float32"])
    assert (first["time_created_ns"], first["time_discovered_completed_ns"]) == (1010, 1030)
    assert third["time_discovered_started_ns"] is None
    assert dump["pg_status"]["allreduce.w"] == {
        "last_enqueued_collective": 2,
        "last_started_collective": 1,
        "last_completed_collective": 1,
    }


def test_sizes_that_may_differ_between_ranks_are_left_out() -> None:
    rows = [{"kinds": KINDS.index(kind)} for kind in ("allgather", "alltoall", "barrier", "adasum")]
    entries = flight_recorder.dump(operations(*rows), size=2, epoch_ns=0)["entries"]
    assert [one["input_sizes"] for one in entries] == [[[3]], [[2, 3]], [], [[2, 3]]]
    assert [one["profiling_name"].partition(":")[2] for one in entries] == [
        "all_gather_v", "all_to_all", "barrier", "all_reduce",
    ]  # fmt: skip


def test_dumps_of_a_run_that_succeeded_are_removed_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "trace.json.flight"
    dumps.mkdir()
    for name in ("rank_0", "rank_11", "notes"):
        (dumps / name).touch()
    command.keep_dumps(tmp_path / "trace.json", failed=True)
    assert f"`torchfrtrace {dumps}`" in " ".join(capsys.readouterr().err.split())
    command.keep_dumps(tmp_path / "trace.json", failed=False)
    assert [path.name for path in dumps.iterdir()] == ["notes"]
    (dumps / "notes").unlink()
    flight_recorder.remove(tmp_path / "trace.json")
    assert not dumps.exists()
