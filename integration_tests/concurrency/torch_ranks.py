"""Ranks of a case of PyTorch."""

from __future__ import annotations

import paceline.torch as hvd
from integration_tests.concurrency import job
from integration_tests.concurrency.cases import Case
from integration_tests.support.event_training import EventTraining


def run(rank: int, size: int, case: Case, refused: bool) -> str:
    """Run a case on this rank."""
    assert hvd.size() == size
    return job.run(rank, size, case, EventTraining, refused)
