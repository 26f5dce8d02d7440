"""Patch timeline-end: Horovod's timeline is whole, and its thread sleeps."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from integration_tests.support.ranks import run_ranks

STEPS, TENSORS = 3, 1000


def _steps(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    # All threads on one core: the writer has work left when the last operation ends.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    hvd.init()
    for _ in range(STEPS):
        for handle in [hvd.allreduce_async(torch.ones(3), name=f"gradient.{n}") for n in range(TENSORS)]:
            hvd.synchronize(handle)
    hvd.shutdown()


def _idle(rank: int, size: int) -> float:
    """Return the processor time that this rank took, in seconds, in 1 s without any operation."""
    import horovod.torch as hvd

    hvd.init()
    hvd.barrier()
    began_s = time.process_time()
    time.sleep(1)
    taken_s = time.process_time() - began_s
    hvd.barrier()
    return taken_s


@pytest.mark.patch("timeline-end")
def test_the_last_steps_are_in_the_timeline(tmp_path: Path) -> None:
    run_ranks(_steps, 2, env={"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}, fresh=True)
    events = json.loads((tmp_path / "timeline.json").read_text())
    assert sum(one.get("name") == "ALLREDUCE" for one in events) == STEPS * TENSORS
    assert sum(one.get("ph") == "B" for one in events) == sum(one.get("ph") == "E" for one in events)


@pytest.mark.patch("timeline-end")
def test_an_idle_timeline_takes_no_processor_time(tmp_path: Path) -> None:
    taken_s = run_ranks(_idle, 2, env={"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}, fresh=True)
    assert max(taken_s) < 0.7  # without the patch more than 1 s
