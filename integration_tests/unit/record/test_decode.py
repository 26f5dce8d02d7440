"""The snapshots of core/record/recorder.h, as paceline.record.snapshot reads them."""

from __future__ import annotations

from paceline.record import snapshot
from paceline.record.trace import Arrival, Collective, Step, Tensor

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
