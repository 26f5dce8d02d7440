"""The snapshots of core/record/recorder.h, as paceline.native.library reads them."""

from __future__ import annotations

from paceline.native import library as attach

FLOAT32 = 7


def test_snapshot_decodes_to_the_trace_format() -> None:
    tensors = [2, 4000, FLOAT32, 0, 40, FLOAT32, 0]
    arrivals = [2, 0, 500_000_000, 1, 500_000_000]
    collectives = [1, 0, 1_000_000_000, 1_250_000_000, 4040, 2, 1, 0]
    words = [*tensors, 1, 0, 500_000_000, 1, *arrivals, *collectives]
    read = iter(words)
    found, (step,) = attach.decode(read, ["conv.weight", "conv.bias"])
    assert found == [
        {"name": "conv.weight", "bytes": 4000, "dtype": "float32", "process_set": 0},
        {"name": "conv.bias", "bytes": 40, "dtype": "float32", "process_set": 0},
    ]
    assert step == {
        "index": 0,
        "start_s": 0.5,
        "arrivals": [[0, 0.5], [1, 0.5]],
        "collectives": [{"kind": "allreduce", "tensors": [1, 0], "bytes": 4040, "start_s": 1.0, "end_s": 1.25}],
        "coordination_rounds": 1,
    }
    assert next(read, None) is None
