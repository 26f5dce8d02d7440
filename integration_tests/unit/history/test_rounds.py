"""Counts of partial rounds, read after each result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.exchange.wire import Bucket
from paceline.history import rounds
from paceline.history.sums import sums_of
from paceline.partial.state import SavedRounds


class Counts:
    """Counts of a library whose world may end."""

    made = 0

    def __init__(self, *_: Any) -> None:
        pass

    def called(self, full: str) -> bool:
        return True

    def save(self, full: str) -> SavedRounds:
        return SavedRounds(np.zeros(1), np.zeros(1), self.made, 0, 0, 0)


def test_a_result_whose_counts_ended_with_the_world_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PartialBuffers", Counts)
    wire = SimpleNamespace(library=None, process_set=SimpleNamespace(process_set_id=0), full_names=lambda _: ["full"])
    found = rounds.Rounds(SimpleNamespace(wire=wire), 0)
    found.meet(Bucket("w", ("w",)))
    monkeypatch.setattr(Counts, "made", 1)
    applied = found.answered("w", 0, sums_of(np.ones(1)))
    assert applied is not None and (applied.after, applied.received) == (0, 1)
    monkeypatch.setattr(Counts, "made", 0)  # the result came before the end, and is read after it
    assert found.answered("w", 1, sums_of(np.ones(1))) is None
    assert found.performed() == {"w": 1}
