"""The recorder's face in Python: steps, messages and the snapshots that `paceline.record.snapshot.decode` reads."""

from __future__ import annotations

from paceline.core._core import AutomaticNames, Recorder
from paceline.record import snapshot
from paceline.record.trace import Arrival, Collective, Step, Tensor

FLOAT32 = 7


def _decoded(recorder: Recorder) -> tuple[tuple[Tensor, ...], tuple[Step, ...]]:
    words, names = recorder.snapshot()
    return snapshot.decode(iter(words), names.decode().split("\0")[:-1])


def test_snapshot_decodes_to_the_trace_format() -> None:
    recorder = Recorder()
    recorder.start(keep_steps=10, now_ns=1_000_000_000)
    recorder.arrived("conv.weight", 4000, FLOAT32, 0, 1_500_000_000)
    recorder.arrived("conv.bias", 40, FLOAT32, 0, 1_500_000_000)
    recorder.coordinated()
    recorder.performed(0, ["conv.bias", "conv.weight"], 4040, 2_000_000_000, 2_250_000_000)
    tensors, steps = _decoded(recorder)
    assert tensors == (Tensor("conv.weight", 4000, "float32", 0), Tensor("conv.bias", 40, "float32", 0))
    message = Collective("allreduce", (1, 0), 4040, 1.0, 1.25)
    assert steps == (Step(0, 0.5, (Arrival(0, 0.5), Arrival(1, 0.5)), (message,), 1),)


def test_a_repeated_name_begins_a_step_and_old_steps_make_room() -> None:
    recorder = Recorder()
    recorder.start(keep_steps=3, now_ns=0)
    for step in range(7):
        for tensor in ("a", "b", "c"):
            recorder.arrived(tensor, 4, FLOAT32, 0, 100 * step)
        recorder.arrived(f"metric{step}", 4, FLOAT32, 0, 100 * step + 50)
    _, steps = _decoded(recorder)
    assert [step.index for step in steps] == [4, 5, 6]
    assert all(len(step.arrivals) == 4 for step in steps)


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
