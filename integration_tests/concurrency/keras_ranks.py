"""Ranks of a case of Keras, on either backend."""

from __future__ import annotations

import paceline.keras as hvd
from integration_tests.concurrency import job
from integration_tests.concurrency.cases import Case
from integration_tests.support.keras_event_training import KerasEventTraining


def run(rank: int, size: int, case: Case, refused: bool) -> str:
    """Run a case on this rank."""
    assert hvd.size() == size
    return job.run(rank, size, case, KerasEventTraining, refused)
