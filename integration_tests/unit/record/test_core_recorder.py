"""The recorder's face in Python: steps, messages and the snapshots that `paceline.native.library.decode` reads."""

from __future__ import annotations

from paceline.core._core import AutomaticNames, Recorder
from paceline.native import library as attach

FLOAT32 = 7


def _decoded(recorder: Recorder) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    words, names = recorder.snapshot()
    return attach.decode(iter(words), names.decode().split("\0")[:-1])


def test_snapshot_decodes_to_the_trace_format() -> None:
    recorder = Recorder()
    recorder.start(keep_steps=10, now_ns=1_000_000_000)
    recorder.arrived("conv.weight", 4000, FLOAT32, 0, 1_500_000_000)
    recorder.arrived("conv.bias", 40, FLOAT32, 0, 1_500_000_000)
    recorder.coordinated()
    recorder.performed(0, ["conv.bias", "conv.weight"], 4040, 2_000_000_000, 2_250_000_000)
    tensors, steps = _decoded(recorder)
    assert tensors == [
        {"name": "conv.weight", "bytes": 4000, "dtype": "float32", "process_set": 0},
        {"name": "conv.bias", "bytes": 40, "dtype": "float32", "process_set": 0},
    ]
    (step,) = steps
    assert step == {
        "index": 0,
        "start_s": 0.5,
        "arrivals": [[0, 0.5], [1, 0.5]],
        "collectives": [{"kind": "allreduce", "tensors": [1, 0], "bytes": 4040, "start_s": 1.0, "end_s": 1.25}],
        "coordination_rounds": 1,
    }


def test_a_repeated_name_begins_a_step_and_old_steps_make_room() -> None:
    recorder = Recorder()
    recorder.start(keep_steps=3, now_ns=0)
    for step in range(7):
        for tensor in ("a", "b", "c"):
            recorder.arrived(tensor, 4, FLOAT32, 0, 100 * step)
        recorder.arrived(f"metric{step}", 4, FLOAT32, 0, 100 * step + 50)
    _, steps = _decoded(recorder)
    assert [step["index"] for step in steps] == [4, 5, 6]
    assert all(len(step["arrivals"]) == 4 for step in steps)  # type: ignore[arg-type]


def test_names_are_equal_wherever_the_same_kinds_were_counted() -> None:
    one, other = AutomaticNames(), AutomaticNames()
    assert [one.next("allreduce"), one.next("allgather"), one.next("allreduce")] == [
        "allreduce.noname.0.0",
        "allgather.noname.0.0",
        "allreduce.noname.0.1",
    ]
    other.next("allreduce")  # less than the first rank did
    one.meet()
    other.meet()
    assert one.next("allreduce") == other.next("allreduce") == "allreduce.noname.1.0"
